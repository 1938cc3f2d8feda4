"""One policy out of a policy of the caller's and the options of an executor, and the plan of the sandbox's folders.

With a policy of the caller's, options only narrow it: one that would open or raise something is refused. Without one,
they start from the policy that denies everything. What the policy's own rules refuse is reported by option.
"""

from __future__ import annotations

import math
import os
import posixpath
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from fumehood.errors import PolicyError
from fumehood.integrations.autogen.arguments import Requested, RequestedLimit, read_arguments
from fumehood.integrations.autogen.options import OptionError, SandboxCodeExecutorConfig
from fumehood.integrations.autogen.values import Volume
from fumehood.policy import Mount, Network, Policy, format_duration, format_size, parse_duration
from fumehood.policy.hazards import path_hazards
from fumehood.policy.paths import WORKSPACE, is_inside

DEFAULT_TIMEOUT_SECONDS = 60.0
WORK_FOLDER = "/work"
"""Where the sandbox shows the folder of the host, if there is one."""
_VOLUMES = "/volumes"
_WORK_OPTIONS = ("work_dir", "bind_dir")
_UNITS: dict[str, Callable[[float], str]] = {
    "timeout": format_duration,
    "cpu_time": format_duration,
    "memory": format_size,
    "disk": format_size,
}
_OPTIONS = {"name": "container_name", "filesystem.mounts": "volumes"}
_PROBLEM = re.compile(r"(?P<key>[\w.]+)(?:\[(?P<index>\d+)\](?:\.(?P<part>\w+))?)?: (?P<rest>.*)", re.DOTALL)


@dataclass(frozen=True)
class ExecutorPlan:
    policy: Policy
    folder: str
    """The folder in which blocks run, as the sandbox sees it."""
    host_folder: str | None
    """The folder of the host that it is, if any."""
    links: Mapping[str, str]
    """Paths in the workspace -> the mounts that they link to."""
    environment: Mapping[str, str]


def merge(config: SandboxCodeExecutorConfig, policy: Policy | None, packages: Sequence[str]) -> ExecutorPlan:
    requested = read_arguments(config.container)
    if config.timeout is not None:
        requested.limit("timeout", _seconds(config.timeout), "timeout")
    folder, host_folder = _folders(config)
    if host_folder is not None:
        requested.volumes.append(Volume(host_folder, WORK_FOLDER, "rw", "work_dir" if config.work_dir else "bind_dir"))
    links = _move_out_of_workspace(requested)
    if policy is not None:
        folder = _narrow(requested, policy, packages) or folder
    else:
        _refuse_hazards(requested.volumes)
    enforced = _combine(requested, config, policy, packages)
    return ExecutorPlan(enforced, folder, host_folder, links, requested.environment)


def _seconds(timeout: float | str) -> float:
    try:
        return parse_duration(timeout)
    except ValueError as error:
        raise OptionError("timeout", str(error)) from None


def _folders(config: SandboxCodeExecutorConfig) -> tuple[str, str | None]:
    """The folder of the sandbox in which blocks run, and which folder of the host it is."""
    work, bind = (_absolute(path) for path in (config.work_dir, config.bind_dir))
    if work is not None and os.path.realpath(work) == os.getcwd():
        warnings.warn("Using the current directory as work_dir is deprecated.", DeprecationWarning, stacklevel=2)
    if work is not None and is_inside(work, WORKSPACE):
        if bind is not None or os.path.isdir(work):
            raise OptionError("work_dir", f"{work!r} is the sandbox's own; name the host's folder by bind_dir alone")
        return work, None
    if work is not None and bind is not None and work != bind:
        raise OptionError("bind_dir", f"{bind!r} is not work_dir {work!r}; give the one that this machine knows")
    host = work or bind
    return (WORKSPACE, None) if host is None else (WORK_FOLDER, os.path.realpath(host))


def _absolute(path: str | None) -> str | None:
    return None if path is None else os.path.abspath(os.path.expanduser(path))


def _move_out_of_workspace(requested: Requested) -> dict[str, str]:
    """Nothing can be mounted in the workspace: volumes there are mounted elsewhere and linked to."""
    links: dict[str, str] = {}
    for index, volume in enumerate(requested.volumes):
        target = posixpath.normpath(volume.target)
        if is_inside(target, WORKSPACE) and target != WORKSPACE:
            requested.volumes[index] = replace(volume, target=_VOLUMES + target.removeprefix(WORKSPACE))
            links[target] = requested.volumes[index].target
    return links


def _refuse_hazards(volumes: Sequence[Volume]) -> None:
    """A policy may show such a folder on purpose; an option of Docker more likely does so by habit."""
    home = os.path.realpath(os.path.expanduser("~"))
    for volume in volumes:
        for hazard in path_hazards(volume.source, home):
            raise OptionError(volume.option, f"{volume.source} exposes {hazard}; if intended, mount it in a policy")


def _narrow(requested: Requested, policy: Policy, packages: Sequence[str]) -> str | None:
    """Refuse what is more than the policy allows. Returns where it shows the work folder, if the host has it."""
    for key, limit in requested.limits.items():
        _check_limit(key, limit, policy)
    missing = sorted(set(packages) - set(policy.environment.packages))
    if missing:
        raise OptionError("functions", f"need {missing[0]!r}, which environment.packages of the policy does not list")
    requested.volumes = [_granted(volume, policy) for volume in requested.volumes]
    return next((volume.target for volume in requested.volumes if volume.option in _WORK_OPTIONS), None)


def _check_limit(key: str, limit: RequestedLimit, policy: Policy) -> None:
    allowed: float | None = getattr(policy.resources, key)
    if limit.value > (math.inf if allowed is None else allowed):
        shown = _UNITS.get(key, str)
        raise OptionError(
            limit.option, f"{shown(limit.value)} is more than the policy's resources.{key} of {shown(allowed or 0)}"
        )


def _granted(volume: Volume, policy: Policy) -> Volume:
    """The volume at the policy's target, with at most the requested mode; raises OptionError if it is not mounted."""
    mount = next((mount for mount in policy.filesystem.mounts if _matches(volume, mount)), None)
    if mount is None:
        raise OptionError(volume.option, f"{volume.source!r} is not in filesystem.mounts of the policy; add it there")
    if volume.mode == "rw" and mount.mode == "ro":
        raise OptionError(volume.option, f"the policy mounts {volume.source!r} read-only; it needs mode: rw there")
    return replace(volume, target=mount.target)


def _matches(volume: Volume, mount: Mount) -> bool:
    """A policy may show the work folder anywhere."""
    same_place = volume.option in _WORK_OPTIONS or volume.target == mount.target
    return same_place and volume.source == os.path.realpath(mount.source)


def _combine(
    requested: Requested, config: SandboxCodeExecutorConfig, policy: Policy | None, packages: Sequence[str]
) -> Policy:
    base = policy or Policy(resources={"timeout": DEFAULT_TIMEOUT_SECONDS})
    changes = {
        **_identity(config, base),
        **_network(requested, base),
        "resources": {key: limit.value for key, limit in requested.limits.items()},
        "filesystem": {**_workspace(requested, base), "mounts": _mounts(requested.volumes, base)},
        # A policy of the caller's has them already, as was checked.
        "environment": {"packages": [*packages]} if policy is None else {},
    }
    return _override(base, changes, requested)


def _network(requested: Requested, base: Policy) -> dict[str, object]:
    if requested.network is None:
        return {}
    if not requested.network.value:
        return {"network": Network().model_dump()}
    if not base.network.allow:
        raise OptionError(requested.network.option, "no network is open unless a policy names the hosts: network.allow")
    return {}


def _workspace(requested: Requested, base: Policy) -> dict[str, object]:
    """The size of the workspace stays when an option limits /tmp."""
    return {"workspace": {"size": base.workspace_bytes}} if "disk" in requested.limits else {}


def _identity(config: SandboxCodeExecutorConfig, base: Policy) -> dict[str, object]:
    """The backend, the image and the name."""
    found: dict[str, object] = {}
    for key, option, asked, stated in (
        ("name", "container_name", config.container_name, base.name),
        ("image", "image", config.image, base.image),
        ("backend", "backend", config.backend, None if base.backend == "auto" else base.backend),
    ):
        if asked is not None and stated is not None and asked != stated:
            raise OptionError(option, f"{asked!r} contradicts the policy, which has {stated!r}")
        if asked is not None:
            found[key] = asked
    backend = found.get("backend", base.backend)
    if "image" in found and backend == "native":
        raise OptionError("image", "needs a backend with containers, such as docker; native shows the host's /usr")
    # An image needs containers; the backend reports if there are none.
    return {**found, "backend": "docker"} if "image" in found and backend == "auto" else found


def _mounts(volumes: Sequence[Volume], base: Policy) -> list[dict[str, object]]:
    """Mounts of the policy that no option names stay."""
    asked: list[dict[str, object]] = [
        {"source": volume.source, "target": volume.target, "mode": volume.mode} for volume in volumes
    ]
    named = {volume.target for volume in volumes}
    return [*asked, *(mount.model_dump() for mount in base.filesystem.mounts if mount.target not in named)]


def _override(base: Policy, changes: Mapping[str, object], requested: Requested) -> Policy:
    try:
        return base.override(changes)
    except PolicyError as error:
        # The policy was valid by itself, so an option is the cause.
        raise _option_error(error.problems[0], requested) from None


def _option_error(problem: str, requested: Requested) -> OptionError:
    match = _PROBLEM.fullmatch(problem)
    if match is None:
        return OptionError("options", problem)
    if match["index"] is not None:
        return OptionError(requested.volumes[int(match["index"])].option, f"{match['part'] or 'it'} {match['rest']}")
    limit = requested.limits.get(match["key"].removeprefix("resources."))
    return OptionError(limit.option if limit else _OPTIONS.get(match["key"], match["key"]), match["rest"])
