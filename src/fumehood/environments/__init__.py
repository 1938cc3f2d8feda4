"""Environments: a policy's packages, installed once into a read-only folder that sandboxes see.

Owns what the packages of a policy mean (`spec`), where installed ones are kept and found (`store`), where they come
from (`sources`), how they are installed (`installer`), made read-only and described (`manifest`). Must not know how a
sandbox shows the folder or confines an installer: it hands out a path and a digest, and an `InstallTask` to the runner
that it was given.

    environments/                    0700, the user's own
        KEY.lock                     shared: in use; exclusive: being built or removed
        KEY/manifest.json            what was asked for, what was installed
        KEY/packages/                what a sandbox sees, read-only
        .building-KEY, .removing-KEY what is not usable (yet, or any more); leftovers of killed processes are swept
"""

from fumehood.environments.installer import InstallReport, InstallRunner, InstallTask
from fumehood.environments.manifest import Manifest, Package
from fumehood.environments.spec import EnvironmentSpec, Target
from fumehood.environments.store import EnvironmentLease, EnvironmentStore, InstalledEnvironment

__all__ = [
    "EnvironmentLease",
    "EnvironmentSpec",
    "EnvironmentStore",
    "InstallReport",
    "InstallRunner",
    "InstallTask",
    "InstalledEnvironment",
    "Manifest",
    "Package",
    "Target",
]
