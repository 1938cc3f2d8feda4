"""What a client says of the sandbox that it wants, read and checked against what its key and its tenant allow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from fumehood.errors import DeniedError, UsageError
from fumehood.guest.contract.frames import Header
from fumehood.policy import Policy, deny_all
from fumehood.policy.arguments import add_packages
from fumehood.remote.policies import unpack_policy
from fumehood.server.identity.principals import ForbiddenError, Principal, Scope
from fumehood.server.sandboxes.open_sandbox import Times
from fumehood.server.sandboxes.registry import Opening
from fumehood.server.storage.database import Database
from fumehood.server.tenants.catalogue import check_tenant_policy, find_policy, narrow

_KNOWN = frozenset(
    {"do", "protocol", "policy", "narrow", "offline", "packages", "session", "keep_tmp", "learn", "gated", "snapshot"}
    | {"times", "metadata"}
)
_MOST_METADATA = 32
_MOST_TEXT = 256


async def read_opening(
    database: Database, principal: Principal, wishes: Header, longest: Times, progress: Callable[[str], None]
) -> Opening:
    """UsageError or DeniedError says which of them cannot be had."""
    if unknown := sorted(set(wishes) - _KNOWN):
        raise UsageError(f"the server does not know {unknown[0]!r} of a sandbox; is it older than the client?")
    name, policy = await _policy(database, principal, wishes.get("policy"))
    policy = narrow(policy, _mapping(wishes, "narrow"), network=not wishes.get("offline"))
    if packages := wishes.get("packages"):
        _require(principal, Scope.POLICIES)
        policy = add_packages(policy, packages)
    return Opening(
        policy_name=name,
        policy=policy,
        times=_times(_mapping(wishes, "times"), longest),
        metadata=_metadata(_mapping(wishes, "metadata")),
        session=bool(wishes.get("session")),
        keep_tmp=bool(wishes.get("keep_tmp")),
        learn=bool(wishes.get("learn")),
        snapshot=_text(wishes, "snapshot"),
        progress=progress,
    )


async def _policy(database: Database, principal: Principal, wanted: object) -> tuple[str, Policy]:
    """One of the tenant's catalogue by name. A document of the client's own takes a key that may write policies."""
    if isinstance(wanted, str):
        found = await find_policy(database, principal.tenant, wanted)
        if found is None:
            raise UsageError(f"there is no policy {wanted!r} in the catalogue of {principal.tenant}")
        return wanted, found
    policy = unpack_policy(wanted)
    if policy.digest != deny_all().digest:
        _require(principal, Scope.POLICIES)
    check_tenant_policy(policy, policy.name or "policy")
    return policy.name or "", policy


def _require(principal: Principal, scope: Scope) -> None:
    if not principal.may(scope):
        raise ForbiddenError(scope)


def _times(given: Mapping[str, Any], longest: Times) -> Times:
    """Shorter than the server's, or as they are."""
    for name, value in given.items():
        most = getattr(longest, name, None)
        if most is None or not isinstance(value, int | float) or not value >= 0:
            raise UsageError(f"times.{name}: {value!r} is not a number of seconds that a sandbox can have")
        if value > most:
            raise DeniedError(f"times.{name}: at most {most:g} s at this server")
    return Times(**{name: float(given.get(name, getattr(longest, name))) for name in ("lifetime", "idle", "linger")})


def _metadata(given: Mapping[str, Any]) -> dict[str, str]:
    if len(given) > _MOST_METADATA:
        raise UsageError(f"metadata has more than {_MOST_METADATA} entries")
    for name, value in given.items():
        if not isinstance(value, str) or len(name) > _MOST_TEXT or len(value) > _MOST_TEXT:
            raise UsageError(f"metadata.{name[:40]}: text of at most {_MOST_TEXT} characters")
    return dict(given)


def _mapping(wishes: Header, name: str) -> Mapping[str, Any]:
    given = wishes.get(name)
    if given is not None and not isinstance(given, dict):
        raise UsageError(f"{name} is not a mapping")
    return cast("dict[str, Any]", given or {})


def _text(wishes: Header, name: str) -> str | None:
    given = wishes.get(name)
    if given is not None and not isinstance(given, str):
        raise UsageError(f"{name} is not text")
    return given
