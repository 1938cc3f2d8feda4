"""A diagnosis as plain frozen data, and why a mechanism does not work with the exact command that mends it.

Pure but for `read_settings`: it is given what the kernel answered.
"""

from __future__ import annotations

import errno
import shlex
import shutil
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from fumehood.guest.contract.probe import ProbeAnswer

_SYSCTLS = (
    "kernel.apparmor_restrict_unprivileged_userns",
    "kernel.unprivileged_userns_clone",
    "user.max_user_namespaces",
)
_ALL_USERS = str(2**32 - 1)
_CONTAINER_MARKS = ("/.dockerenv", "/run/.containerenv")
_NEEDED_VERSION = {"mount attributes": "5.12", "id-mapped mounts": "5.12", "Landlock": "5.13", "pidfd": "5.3"}
# All that an engine forbids: what is behind the first wall shows only when that is gone.
_UNCONFINED = (
    "docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined "
    "--security-opt systempaths=unconfined ..."
)


class MechanismState(StrEnum):
    WORKS = "works"
    WEAKER = "weaker"
    """Sandboxes open, with less than the best; a policy with `strict: true` may refuse."""
    MISSING = "missing"
    """Sandboxes cannot open without it."""
    UNUSED = "unused"
    """Not needed here, or something else does its work."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """Why something does not work, and the commands of which each one mends it."""

    reason: str
    fixes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MechanismCheck:
    """One mechanism. Each of `fixes` is a command that mends it by itself."""

    name: str
    condition: MechanismState
    purpose: str
    detail: str = ""
    fixes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Diagnosis:
    system: str
    user: str
    checks: tuple[MechanismCheck, ...]


@dataclass(frozen=True, slots=True)
class KernelSettings:
    """What on this system can stand in the way."""

    sysctls: dict[str, str]
    in_container: bool
    is_root: bool
    has_all_users: bool
    """False for the root of a user namespace, which can give only the uids that it was given."""
    interpreter: str


def read_settings(*, is_root: bool, interpreter: str, proc: Path = Path("/proc")) -> KernelSettings:
    sysctls: dict[str, str] = {}
    for name in _SYSCTLS:
        path = proc / "sys" / name.replace(".", "/")
        if path.exists():
            sysctls[name] = path.read_text().strip()
    return KernelSettings(
        sysctls=sysctls,
        in_container=any(Path(mark).exists() for mark in _CONTAINER_MARKS),
        is_root=is_root,
        has_all_users=(proc / "self/uid_map").read_text().split() == ["0", "0", _ALL_USERS],
        interpreter=interpreter,
    )


def explain(mechanism: str, answer: ProbeAnswer, settings: KernelSettings) -> Remedy:
    said = answer.get("error", "")
    if answer.get("errno") == errno.ENOSYS:
        version = _NEEDED_VERSION.get(mechanism)
        needed = f"; it came with Linux {version}" if version else ""
        return Remedy(f"this kernel does not know it ({said}){needed}", ("uname -r   # a newer kernel is needed",))
    if mechanism == "Landlock":
        return _landlock(said)
    if mechanism == "seccomp filter" and "ValueError" in said:
        return Remedy(said.removeprefix("ValueError: "))
    if mechanism.endswith("namespace") or mechanism in ("user namespaces", "fresh /proc", "mount attributes"):
        return _namespaces(mechanism, said, answer.get("errno"), settings)
    return Remedy(said)


def _namespaces(mechanism: str, said: str, number: int | None, settings: KernelSettings) -> Remedy:
    sysctls = settings.sysctls
    if sysctls.get("user.max_user_namespaces") == "0":
        return Remedy(
            "user.max_user_namespaces is 0: user namespaces are switched off",
            ("sudo sysctl -w user.max_user_namespaces=15000",),
        )
    if not settings.is_root and sysctls.get("kernel.unprivileged_userns_clone") == "0":
        return Remedy(
            "kernel.unprivileged_userns_clone is 0: only root may make user namespaces",
            ("sudo sysctl -w kernel.unprivileged_userns_clone=1",),
        )
    if not settings.is_root and sysctls.get("kernel.apparmor_restrict_unprivileged_userns") == "1":
        return _apparmor(settings.interpreter)
    if number == errno.ENOSPC:
        return Remedy(
            f"{said}: user.max_user_namespaces or the depth of namespaces is used up",
            ("sudo sysctl -w user.max_user_namespaces=15000",),
        )
    if settings.is_root and not settings.has_all_users:
        return Remedy(
            f"{said}: this root is the root of a user namespace and has too few users to give; use another user",
            ("setpriv --reuid 1000 --regid 1000 --clear-groups hood run ...",),
        )
    if mechanism == "fresh /proc":
        return Remedy(f"{said}: parts of /proc are covered, as containers do", (_UNCONFINED,))
    if number in (errno.EPERM, errno.EACCES) and settings.in_container:
        return Remedy(f"{said}: the container around us forbids it", (_UNCONFINED,))
    return Remedy(said)


def _apparmor(interpreter: str) -> Remedy:
    profile = (
        "printf 'abi <abi/4.0>,\\nprofile fumehood %s flags=(unconfined) { userns, }\\n' \\\n"
        f"  {shlex.quote(interpreter)} | sudo tee /etc/apparmor.d/fumehood && \\\n"
        "  sudo apparmor_parser -r /etc/apparmor.d/fumehood"
    )
    return Remedy(
        "AppArmor keeps user namespaces from ordinary users (Ubuntu 23.10 and later); the first command allows them "
        "for every program until the next start, the second for this interpreter alone and for good",
        ("sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0", profile),
    )


def _landlock(said: str) -> Remedy:
    fix = boot_with("lsm=landlock,$(cat /sys/kernel/security/lsm)")
    return Remedy(f"{said}, and mounts alone keep files apart; with Linux 5.13 or newer it can be switched on", (fix,))


def boot_with(argument: str) -> str:
    """The command that adds to the kernel's command line, as the distribution at hand does it."""
    if shutil.which("grubby"):
        return f'sudo grubby --update-kernel=ALL \\\n  --args="{argument}" && sudo reboot'
    return (
        f'sudo sed -i "s|^GRUB_CMDLINE_LINUX=\\"|&{argument} |" \\\n'
        "  /etc/default/grub && sudo update-grub && sudo reboot"
    )
