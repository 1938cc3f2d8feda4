"""One policy out of a policy and the wishes of options. What its own rules refuse is told in the options' words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from fumehood.errors import PolicyError
from fumehood.integrations.autogen.options import SandboxCodeExecutorConfig
from fumehood.integrations.autogen.refusals import OptionError
from fumehood.integrations.autogen.wishes import Volume, Wishes
from fumehood.policy import Network, Policy

DEFAULT_TIMEOUT_SECONDS = 60.0
_OPTIONS = {"name": "container_name", "filesystem.mounts": "volumes"}
_PROBLEM = re.compile(r"(?P<key>[\w.]+)(?:\[(?P<index>\d+)\](?:\.(?P<part>\w+))?)?: (?P<rest>.*)", re.DOTALL)


def combine(
    wishes: Wishes, config: SandboxCodeExecutorConfig, policy: Policy | None, packages: Sequence[str]
) -> Policy:
    base = policy or Policy(resources={"timeout": DEFAULT_TIMEOUT_SECONDS})
    changes = {
        **_identity(config, base),
        **_network(wishes, base),
        "resources": {key: limit.value for key, limit in wishes.limits.items()},
        "filesystem": {**_workspace(wishes, base), "mounts": _mounts(wishes.volumes, base)},
        # With a policy of the caller's they are known to be in it.
        "environment": {"packages": [*packages]} if policy is None else {},
    }
    return _override(base, changes, wishes)


def _network(wishes: Wishes, base: Policy) -> dict[str, object]:
    if wishes.network is None:
        return {}
    if not wishes.network.value:
        return {"network": Network().model_dump()}
    if not base.network.allow:
        raise OptionError(wishes.network.option, "no network is open unless a policy says to whom: network.allow")
    return {}


def _workspace(wishes: Wishes, base: Policy) -> dict[str, object]:
    """A size for /tmp is none for the workspace."""
    return {"workspace": {"size": base.workspace_bytes}} if "disk" in wishes.limits else {}


def _identity(config: SandboxCodeExecutorConfig, base: Policy) -> dict[str, object]:
    """Where it runs, and under which name."""
    found: dict[str, object] = {}
    for key, option, asked, stated in (
        ("name", "container_name", config.container_name, base.name),
        ("image", "image", config.image, base.image),
        ("backend", "backend", config.backend, None if base.backend == "auto" else base.backend),
    ):
        if asked is not None and stated is not None and asked != stated:
            raise OptionError(option, f"{asked!r} contradicts the policy, which says {stated!r}")
        if asked is not None:
            found[key] = asked
    backend = found.get("backend", base.backend)
    if "image" in found and backend == "native":
        raise OptionError("image", "needs a backend with containers, such as docker; native shows the host's /usr")
    # Whoever names an image wants containers; the backend says if there are none.
    return {**found, "backend": "docker"} if "image" in found and backend == "auto" else found


def _mounts(volumes: Sequence[Volume], base: Policy) -> list[dict[str, object]]:
    """Those of the policy that no option speaks of stay."""
    asked: list[dict[str, object]] = [
        {"source": volume.source, "target": volume.target, "mode": volume.mode} for volume in volumes
    ]
    spoken_of = {volume.target for volume in volumes}
    return [*asked, *(mount.model_dump() for mount in base.filesystem.mounts if mount.target not in spoken_of)]


def _override(base: Policy, changes: Mapping[str, object], wishes: Wishes) -> Policy:
    try:
        return base.override(changes)
    except PolicyError as error:
        # The policy was fine by itself, so whatever is wrong now was said by an option.
        raise _in_options(error.problems[0], wishes) from None


def _in_options(problem: str, wishes: Wishes) -> OptionError:
    match = _PROBLEM.fullmatch(problem)
    if match is None:
        return OptionError("options", problem)
    if match["index"] is not None:
        return OptionError(wishes.volumes[int(match["index"])].option, f"{match['part'] or 'it'} {match['rest']}")
    limit = wishes.limits.get(match["key"].removeprefix("resources."))
    return OptionError(limit.option if limit else _OPTIONS.get(match["key"], match["key"]), match["rest"])
