"""Options beside a policy of the caller's: they may ask for less than it gives, never for more."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace

from fumehood.integrations.autogen.refusals import OptionError
from fumehood.integrations.autogen.wishes import Limit, Volume, Wishes
from fumehood.policy import Mount, Policy, format_duration, format_size

_WORK_OPTIONS = ("work_dir", "bind_dir")
_UNITS: dict[str, Callable[[float], str]] = {
    "timeout": format_duration,
    "cpu_time": format_duration,
    "memory": format_size,
    "disk": format_size,
}


def check_tightening(wishes: Wishes, policy: Policy, packages: Sequence[str]) -> str | None:
    """Where the policy shows the folder that blocks work in, if they work in one of the host's."""
    for key, limit in wishes.limits.items():
        _check_limit(key, limit, policy)
    missing = sorted(set(packages) - set(policy.environment.packages))
    if missing:
        raise OptionError("functions", f"need {missing[0]!r}, which environment.packages of the policy does not list")
    wishes.volumes = [_granted(volume, policy) for volume in wishes.volumes]
    return next((volume.target for volume in wishes.volumes if volume.option in _WORK_OPTIONS), None)


def _check_limit(key: str, limit: Limit, policy: Policy) -> None:
    allowed: float | None = getattr(policy.resources, key)
    if limit.value > (math.inf if allowed is None else allowed):
        shown = _UNITS.get(key, str)
        raise OptionError(
            limit.option, f"{shown(limit.value)} is more than the policy's resources.{key} of {shown(allowed or 0)}"
        )


def _granted(volume: Volume, policy: Policy) -> Volume:
    """As the policy mounts it, but no more than is asked for."""
    mount = next((mount for mount in policy.filesystem.mounts if _is_meant(volume, mount)), None)
    if mount is None:
        raise OptionError(volume.option, f"{volume.source!r} is not in filesystem.mounts of the policy; add it there")
    if volume.mode == "rw" and mount.mode == "ro":
        raise OptionError(volume.option, f"the policy mounts {volume.source!r} read-only; mode: rw has to stand there")
    return replace(volume, target=mount.target)


def _is_meant(volume: Volume, mount: Mount) -> bool:
    """A policy may show the folder of work anywhere."""
    same_place = volume.option in _WORK_OPTIONS or volume.target == mount.target
    return same_place and volume.source == os.path.realpath(mount.source)
