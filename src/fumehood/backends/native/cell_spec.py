"""Builds the specification of a cell from a policy: folders, files, limits. Reads paths, changes nothing."""

from __future__ import annotations

import glob
import os
import secrets
from pathlib import Path

from fumehood.backends import package_commands, program_env
from fumehood.backends.executables import executables, executes_mount
from fumehood.backends.interface import PackageFolder
from fumehood.backends.mounts import existing_source, writable_mounts
from fumehood.backends.native.host_facts import HostFacts
from fumehood.errors import UsageError
from fumehood.guest.contract.cell_spec import BindSpec, CellLimits, CellSpec
from fumehood.guest.contract.limits import LOOPBACK, SANDBOX_UID, UID_RANGE
from fumehood.guest.contract.paths import TRUST_FILE, USER_HOME, WORKSPACE
from fumehood.guest.contract.preload import USUAL_MODULES
from fumehood.host.interpreter import PACKAGES_PLACE
from fumehood.policy import Policy
from fumehood.policy.paths import is_inside

STANDBYS = 2
IDLE_SECONDS = 60.0

# Far above accounts and the ranges that distributions hand out; each cell takes one range of it at random.
_FIRST_UID = 1_000_000_000
_UID_RANGES = 16_000

_SYSTEM_FOLDERS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
# Java's folders hold what is a part of the program elsewhere: Debian's packages only link to it from /usr.
_SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/alternatives", "/etc/java-*-openjdk")
_FOLDERS = [WORKSPACE, "/tmp", "/run", "/proc", "/dev/pts", "/dev/shm", "/etc", "/var/empty"]

_FILES = {
    "/etc/passwd": f"root:x:0:0:root:/:/usr/sbin/nologin\nsandbox:x:{SANDBOX_UID}:{SANDBOX_UID}::{WORKSPACE}:/bin/sh\n"
    "nobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
    "/etc/group": f"root:x:0:\nsandbox:x:{SANDBOX_UID}:\nnogroup:x:65534:\n",
    "/etc/hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    "/etc/resolv.conf": "",
}
_LINKS = {
    "/dev/fd": "/proc/self/fd",
    "/dev/stdin": "/proc/self/fd/0",
    "/dev/stdout": "/proc/self/fd/1",
    "/dev/stderr": "/proc/self/fd/2",
    "/dev/ptmx": "pts/ptmx",
    "/etc/mtab": "/proc/self/mounts",
    "/etc/os-release": "/usr/lib/os-release",
    "/var/tmp": "../tmp",  # one limit for both, and the same lifetime
}
# For a sandbox with network rules. All distributions' names for one bundle; each run has its own CA certificates.
_FILES_TO_GO_OUT = {"/etc/resolv.conf": f"nameserver {LOOPBACK}\noptions timeout:5 attempts:2\n"}
_LINKS_TO_GO_OUT: dict[str, str] = dict.fromkeys(
    (
        "/etc/ssl/cert.pem",
        "/etc/ssl/certs/ca-certificates.crt",
        "/etc/ssl/ca-bundle.pem",
        "/etc/pki/tls/certs/ca-bundle.crt",
        "/etc/pki/tls/cert.pem",
        "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    ),
    TRUST_FILE,
)


def build_cell_spec(
    policy: Policy, facts: HostFacts, packages: PackageFolder | None = None, ports: tuple[int, ...] = ()
) -> CellSpec:
    uid_base = _FIRST_UID + secrets.randbelow(_UID_RANGES) * UID_RANGE
    system, links = _system_binds()
    mounts = _policy_binds(policy, uid_base if facts.is_root else None)
    interpreter = facts.interpreter
    commands = package_commands.package_commands(policy, interpreter.executable, is_open=bool(ports))
    installer = [_read_only(commands.installer, package_commands.PROGRAM)] if commands.installer else []
    binds = [*system, *_interpreter_binds(facts), *installer, *_package_binds(policy, packages), *mounts]
    links |= _interpreter_links(facts) | _second_name_of_workspace(binds)
    return {
        "host_process": -1,
        "rootless": not facts.is_root,
        "host_uid": facts.uid,
        "host_gid": facts.gid,
        "uid_base": uid_base,
        "binds": binds,
        "folders": _FOLDERS,
        "files": {**_FILES, **commands.files, **(_FILES_TO_GO_OUT if ports else {})},
        "programs": commands.programs,
        "symlinks": {**_LINKS, **links, **_LINKS_TO_GO_OUT} if ports else {**_LINKS, **links},
        "covered": package_commands.covers(interpreter),
        "writable": writable_mounts(policy),
        "executables": executables(policy),
        "hierarchies": [],
        "entrances": [],
        "limits": _limits(policy, facts),
        "preload": [*USUAL_MODULES, *policy.environment.preload, *program_env.shell_modules(packages)],
        "module_path": [PACKAGES_PLACE] if packages else [],
        "environment": _environment(policy, facts, packages),
        "ports": list(ports),
        "shares_loopback": policy.network.shares_loopback,
        "standbys": STANDBYS,
        "idle_seconds": IDLE_SECONDS,
    }


def _environment(policy: Policy, facts: HostFacts, packages: PackageFolder | None) -> dict[str, str]:
    path = (package_commands.COMMANDS, "/usr/local/bin", "/usr/bin", "/bin")
    return program_env.environment(policy, path, len(facts.cpus), PACKAGES_PLACE if packages else None)


def _system_binds() -> tuple[list[BindSpec], dict[str, str]]:
    """/usr, and the folders beside it as they are on this system: links into /usr, or folders of their own."""
    binds, links = [_read_only("/usr")], dict[str, str]()
    for name in _SYSTEM_FOLDERS:
        folder = Path("/", name)
        if folder.is_symlink():
            links[f"/{name}"] = os.readlink(folder)
        elif folder.is_dir():
            binds.append(_read_only(f"/{name}"))
    binds += [_read_only(path) for pattern in _SYSTEM_FILES for path in sorted(glob.glob(pattern))]
    return binds, links


def _interpreter_binds(facts: HostFacts) -> list[BindSpec]:
    prefix = facts.interpreter.prefix
    return [] if Path(prefix).is_relative_to("/usr") else [_read_only(prefix)]


def _interpreter_links(facts: HostFacts) -> dict[str, str]:
    """Its own names alone: the other programs beside it belong to packages that the sandbox does not see."""
    interpreter = facts.interpreter
    if Path(interpreter.prefix).is_relative_to("/usr"):
        return {}
    major, minor = interpreter.version
    names = ("python", f"python{major}", f"python{major}.{minor}")
    return {f"{package_commands.COMMANDS}/{name}": interpreter.executable for name in names}


def _second_name_of_workspace(binds: list[BindSpec]) -> dict[str, str]:
    """Not where something of the host is shown, such as an interpreter in a user's home. Relative: while the root is
    filled, an absolute link would lead to the host's folder."""
    targets = [bind["target"] for bind in binds]
    if any(is_inside(target, USER_HOME) or is_inside(USER_HOME, target) for target in targets):
        return {}
    return {USER_HOME: f"../{WORKSPACE.removeprefix('/')}"}


def _package_binds(policy: Policy, packages: PackageFolder | None) -> list[BindSpec]:
    if packages is None:
        return []
    for mount in policy.filesystem.mounts:
        if is_inside(PACKAGES_PLACE, mount.target) or is_inside(mount.target, PACKAGES_PLACE):
            raise UsageError(
                f"mount target {mount.target!r} would cover the packages at {PACKAGES_PLACE}; choose another"
            )
    return [{"source": packages.path, "target": PACKAGES_PLACE, "mode": "ro", "executes": True, "owner": None}]


def _policy_binds(policy: Policy, uid_base: int | None) -> list[BindSpec]:
    owner = None if uid_base is None else uid_base + SANDBOX_UID
    binds: list[BindSpec] = []
    for mount in policy.filesystem.mounts:
        source = existing_source(mount.source)
        target, executes = mount.target, executes_mount(policy, mount)
        binds.append({"source": source, "target": target, "mode": mount.mode, "executes": executes, "owner": owner})
    return binds


def _read_only(path: str, target: str | None = None) -> BindSpec:
    return {"source": path, "target": target or path, "mode": "ro", "executes": True, "owner": None}


def _limits(policy: Policy, facts: HostFacts) -> CellLimits:
    resources = policy.resources
    whole_cpus = min(len(facts.cpus), int(resources.cpus))
    return {
        "memory_bytes": resources.memory,
        "processes": resources.processes,
        "cpus": resources.cpus,
        "disk_bytes": resources.disk,
        "workspace_bytes": policy.filesystem.workspace.size or resources.disk,
        "inodes": resources.inodes,
        "open_files": resources.open_files,
        "cpu_seconds": resources.cpu_time,
        "address_space_bytes": None if facts.controls("memory") else resources.memory,
        "affinity": None if facts.controls("cpu") else list(facts.cpus[:whole_cpus]),
    }
