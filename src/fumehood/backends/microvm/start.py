"""What a machine's guest is told, from a policy. Pure."""

from __future__ import annotations

from fumehood.backends import program_env
from fumehood.backends.executables import executables
from fumehood.backends.interface import PackageFolder
from fumehood.backends.microvm.image import MachineImage
from fumehood.guest.contract.machine_spec import MachineStart
from fumehood.guest.contract.paths import RUN_FOLDER, TMP, VAR_TMP
from fumehood.guest.contract.preload import USUAL_MODULES
from fumehood.guest.contract.relay_spec import RelaySpec
from fumehood.host.interpreter import PACKAGES_PLACE
from fumehood.policy import Policy

HOST_NAME = "sandbox"
# A guest that hears nothing for so long is alone; the host says something far more often.
PATIENCE_SECONDS = 60.0
_PATH = ("/usr/local/bin", "/usr/bin", "/bin")
_ONE_PROCESSOR = 1
_SCRATCH_FOLDERS = {RUN_FOLDER: 0o755, TMP: 0o1777, VAR_TMP: 0o1777, "/dev/shm": 0o1777}


def machine_start(
    policy: Policy, image: MachineImage, packages: PackageFolder | None, *, has_packages: bool
) -> MachineStart:
    """Without what is new in every copy. `has_packages`: the disk of packages or the image holds them."""
    resources, (uid, gid) = policy.resources, image.user
    return {
        "entropy": "",
        "time_ns": 0,
        "host_name": HOST_NAME,
        "workspace": f"size={policy.workspace_bytes},nr_inodes={resources.inodes},mode=755,uid={uid},gid={gid}",
        "scratch": f"size={resources.disk},nr_inodes={resources.inodes},mode=755",
        "scratch_folders": _SCRATCH_FOLDERS,
        "executes": executables(policy) is None,
        "memory_bytes": resources.memory,
        "has_packages": packages is not None,
        "fresh": policy.strict,
        "relay": _relay_spec(policy, image, packages, has_packages=has_packages),
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
