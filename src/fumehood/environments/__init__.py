"""Environments: a policy's packages, installed once into a read-only folder that sandboxes see.

Owns what the packages of a policy mean (`wishes`, `requirements`), where installed ones are kept and how they are found
(`store`), where they come from (`sources`), how they get there (`installer`) and that nobody sees half of one (`locks`,
`sealing`). Must not know how a sandbox shows the folder, or holds an installer: it hands out a path and a digest, and
a `Task` to the runner that it was given.

    environments/                    0700, the user's own
        KEY.lock                     shared: in use; exclusive: being built or removed
        KEY/manifest.json            what was asked for, what was installed
        KEY/packages/                what a sandbox sees, read-only
        .building-KEY, .removing-KEY what is not usable (yet, or any more); leftovers of killed processes are swept
"""

from fumehood.environments.manifest import Manifest, Package
from fumehood.environments.store import Environment, EnvironmentStore, Lease
from fumehood.environments.task import Report, Runner, Task
from fumehood.environments.wishes import Target, Wishes

__all__ = [
    "Environment",
    "EnvironmentStore",
    "Lease",
    "Manifest",
    "Package",
    "Report",
    "Runner",
    "Target",
    "Task",
    "Wishes",
]
