"""What a machine's guest is told, from a policy. Pure."""

from __future__ import annotations

from fumehood.backends import program_env
from fumehood.backends.executables import executables
from fumehood.backends.interface import PackageFolder
from fumehood.backends.microvm.image import MachineImage
from fumehood.guest.contract.machine_spec import MachineStart
from fumehood.guest.contract.paths import RUN_FOLDER, TMP, VAR_TMP, WORKSPACE
from fumehood.guest.contract.preload import USUAL_MODULES
from fumehood.guest.contract.relay_spec import RelaySpec
from fumehood.host.interpreter import PACKAGES_PLACE
from fumehood.policy import Policy

HOST_NAME = "sandbox"
# A guest that hears nothing for so long is alone; the host says something far more often.
PATIENCE_SECONDS = 60.0
_PATH = ("/usr/local/bin", "/usr/bin", "/bin")
_ONE_PROCESSOR = 1


def machine_start(
    policy: Policy, image: MachineImage, packages: PackageFolder | None, *, has_packages: bool
) -> MachineStart:
    """Without what is new in every copy. `has_packages`: the disk of packages or the image holds them."""
    return {
        "entropy": "",
        "time_ns": 0,
        "host_name": HOST_NAME,
        "folders": _folders(policy, image),
        "executes": executables(policy) is None,
        "memory_bytes": policy.resources.memory,
        "has_packages": packages is not None,
        "fresh": policy.strict,
        "relay": _relay_spec(policy, image, packages, has_packages=has_packages),
    }


def _folders(policy: Policy, image: MachineImage) -> dict[str, str]:
    resources, (uid, gid) = policy.resources, image.user
    scratch = f"size={resources.disk},nr_inodes={resources.inodes}"
    workspace = f"size={policy.workspace_bytes},nr_inodes={resources.inodes}"
    own = f"mode=755,uid={uid},gid={gid}"
    return {
        WORKSPACE: f"{workspace},{own}",
        RUN_FOLDER: f"{scratch},{own}",
        TMP: f"{scratch},mode=1777",
        VAR_TMP: f"{scratch},mode=1777",
        "/dev/shm": f"{scratch},mode=1777",
    }


def _relay_spec(
    policy: Policy, image: MachineImage, packages: PackageFolder | None, *, has_packages: bool
) -> RelaySpec:
    resources = policy.resources
    place = PACKAGES_PLACE if has_packages else None
    return {
        "limits": {
            "open_files": resources.open_files,
            "file_bytes": max(resources.disk, policy.workspace_bytes),
            "cpu_seconds": resources.cpu_time,
            "address_space_bytes": None,
            "processes": resources.processes,
        },
        "writable": {},
        "executables": executables(policy),
        "hidden": None,
        "preload": [*USUAL_MODULES, *policy.environment.preload, *program_env.shell_modules(packages)],
        "module_path": [place] if place else [],
        "environment": program_env.environment(policy, _PATH, _ONE_PROCESSOR, place),
        "user": list(image.user),
        "groups": "machine",
        "patience_seconds": PATIENCE_SECONDS,
    }
