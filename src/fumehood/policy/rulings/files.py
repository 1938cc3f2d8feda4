"""Reading and writing: the policy's mounts, the sandbox's own folders, and the few things of the system that it shows.

Lexical, as the policy's paths are: whether a file is there, or lets this user read it, shows only in a real sandbox.
"""

from __future__ import annotations

import json
import re

from fumehood.host.interpreter import PACKAGES_PLACE, own_interpreter
from fumehood.policy.decision import Decision
from fumehood.policy.filesystem import Mount
from fumehood.policy.model import Policy
from fumehood.policy.paths import SYSTEM_PATHS, is_inside
from fumehood.policy.quantities import format_size
from fumehood.policy.rulings import places

# What YAML takes as it is, in braces too.
_PLAIN = re.compile(r"/[A-Za-z0-9/._+@~-]*", re.ASCII)


def decide_read(policy: Policy, path: str) -> Decision[str]:
    attempt = f"read {path}"
    if mount := _mount_of(policy, path):
        return Decision(attempt, True, f"{mount.source} is mounted at {mount.target}", _key(mount))
    if why := _shown(policy, path):
        return Decision(attempt, True, why)
    return _hidden(attempt, path, "")


def decide_write(policy: Policy, path: str) -> Decision[str]:
    attempt = f"write {path}"
    if mount := _mount_of(policy, path):
        if mount.mode == "rw":
            return Decision(attempt, True, f"{mount.source} is mounted at {mount.target}, to be written", _key(mount))
        why, remedy = f"{mount.source} is mounted read-only at {mount.target}", f"set mode: rw in {_key(mount)}"
        return Decision(attempt, False, why, _key(mount), remedy)
    if places.is_in_any(path, places.OWN):
        return Decision(attempt, True, _own_words(policy, path))
    if places.is_in_any(path, places.DEVICES) or places.is_own_descriptor(path):
        return Decision(attempt, True, "it is a device of the sandbox's own, or what one of its processes has open")
    if _shown(policy, path):
        return Decision(attempt, False, "the sandbox shows it, and nothing there can be written")
    return _hidden(attempt, path, ", mode: rw")


def _mount_of(policy: Policy, path: str) -> Mount | None:
    return next((mount for mount in policy.filesystem.mounts if is_inside(path, mount.target)), None)


def _key(mount: Mount) -> str:
    return f"filesystem.mounts[{mount.target}]"


def _own_words(policy: Policy, path: str) -> str:
    if is_inside(path, places.WORKSPACE):
        return f"it is in the workspace, which holds {format_size(policy.workspace_bytes)}"
    return f"it is in a scratch folder of the run's own, which holds {format_size(policy.resources.disk)}"


def _shown(policy: Policy, path: str) -> str:
    """Why a path can be read although no mount has it; empty when it cannot."""
    if places.is_in_any(path, places.OWN):
        return _own_words(policy, path)
    if is_inside(path, "/proc"):
        return "" if places.is_covered(path) else "/proc tells of the sandbox's own processes"
    if places.is_in_any(path, (*places.SYSTEM, own_interpreter().prefix)):
        return "programs and libraries of the system are shown to every sandbox"
    if places.is_furniture(path):
        return "it is one of the few that every sandbox has, with nothing of the host's in it"
    if _has_packages(policy) and is_inside(path, PACKAGES_PLACE):
        return "the packages of environment are there"
    return _on_the_way(policy, path)


def _on_the_way(policy: Policy, path: str) -> str:
    """A folder that leads to something shown can be listed, and lists nothing else."""
    shown = [mount.target for mount in policy.filesystem.mounts]
    shown += [*places.OWN, *places.SYSTEM, *places.FILES_OF_ETC, *places.DEVICES, own_interpreter().prefix]
    if _has_packages(policy):
        shown.append(PACKAGES_PLACE)
    return "it is a folder that leads to something shown" if any(is_inside(place, path) for place in shown) else ""


def _has_packages(policy: Policy) -> bool:
    return bool(policy.environment.packages) or policy.environment.requirements is not None


def _hidden(attempt: str, path: str, mode: str) -> Decision[str]:
    for owned in SYSTEM_PATHS:
        if is_inside(path, owned):
            why = f"{owned} is the sandbox's own and does not have it, whatever a policy says"
            return Decision(attempt, False, why)
    written = path if _PLAIN.fullmatch(path) else json.dumps(path, ensure_ascii=False)
    remedy = f"add {{source: {written}, target: {written}{mode}}} to filesystem.mounts"
    return Decision(attempt, False, "nothing is mounted there", "filesystem.mounts", remedy)
