"""From options and a policy to the policy that is enforced, and to what has to be laid out in the sandbox.

With a policy of the caller's, options only tighten it: one that would open or raise something is refused.
Without one, they start from the policy that denies everything.
"""

from __future__ import annotations

import os
import posixpath
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fumehood.integrations.autogen.arguments import read_arguments
from fumehood.integrations.autogen.combination import combine
from fumehood.integrations.autogen.options import SandboxCodeExecutorConfig
from fumehood.integrations.autogen.refusals import OptionError
from fumehood.integrations.autogen.tightening import check_tightening
from fumehood.integrations.autogen.wishes import Volume, Wishes
from fumehood.policy import Policy, parse_duration
from fumehood.policy.hazards import path_hazards
from fumehood.policy.paths import WORKSPACE, is_inside

WORK_FOLDER = "/work"
"""Where the folder of the host's is seen, if there is one."""
_VOLUMES = "/volumes"


@dataclass(frozen=True)
class Plan:
    policy: Policy
    folder: str
    """Where blocks run, as the sandbox sees it."""
    host_folder: str | None
    """What it is on the host."""
    links: Mapping[str, str]
    """Places in the workspace -> the mounts that they stand for."""
    environment: Mapping[str, str]


def make_plan(config: SandboxCodeExecutorConfig, policy: Policy | None, packages: Sequence[str]) -> Plan:
    wishes = read_arguments(config.container)
    if config.timeout is not None:
        wishes.limit("timeout", _seconds(config.timeout), "timeout")
    folder, host_folder = _folders(config)
    if host_folder is not None:
        wishes.volumes.append(Volume(host_folder, WORK_FOLDER, "rw", "work_dir" if config.work_dir else "bind_dir"))
    links = _move_out_of_workspace(wishes)
    if policy is not None:
        folder = check_tightening(wishes, policy, packages) or folder
    else:
        _refuse_hazards(wishes.volumes)
    enforced = combine(wishes, config, policy, packages)
    return Plan(enforced, folder, host_folder, links, wishes.environment)


def _seconds(timeout: float | str) -> float:
    try:
        return parse_duration(timeout)
    except ValueError as error:
        raise OptionError("timeout", str(error)) from None


def _folders(config: SandboxCodeExecutorConfig) -> tuple[str, str | None]:
    """The folder of the sandbox's that blocks run in, and which one of the host's it is."""
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


def _move_out_of_workspace(wishes: Wishes) -> dict[str, str]:
    """The workspace is made anew and nothing is mounted in it; volumes there are mounted elsewhere and linked to."""
    links: dict[str, str] = {}
    for index, volume in enumerate(wishes.volumes):
        target = posixpath.normpath(volume.target)
        if is_inside(target, WORKSPACE) and target != WORKSPACE:
            wishes.volumes[index] = replace(volume, target=_VOLUMES + target.removeprefix(WORKSPACE))
            links[target] = wishes.volumes[index].target
    return links


def _refuse_hazards(volumes: Sequence[Volume]) -> None:
    """What a policy may mean, an option of Docker's more likely says by habit."""
    home = os.path.realpath(os.path.expanduser("~"))
    for volume in volumes:
        for hazard in path_hazards(volume.source, home):
            raise OptionError(volume.option, f"{volume.source} exposes {hazard}; if that is meant, say so in a policy")
