"""What a client says of the sandbox that it wants, read and checked against what its key and its tenant allow."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

from fumehood.errors import DeniedError, UsageError
from fumehood.guest.contract.frames import FrameError, Header
from fumehood.policy import Policy, deny_all
from fumehood.policy.arguments import add_packages
from fumehood.remote.policies import unpack_policy, unpack_recent
from fumehood.sandbox.workspace_state import PolicyUse
from fumehood.server.identity.principals import ForbiddenError, Principal, Scope
from fumehood.server.sandboxes.opening import NameUse, Opening, Times
from fumehood.server.storage.database import Database
from fumehood.server.tenants.catalogue import check_tenant_policy, find_policy, narrow
from fumehood.server.tenants.policy_work import beside_the_loop
from fumehood.snapshots import SnapshotStore
from fumehood.snapshots.records import checked_name

StoreFinder = Callable[[str], Awaitable[SnapshotStore]]
"""The named sandboxes of a tenant."""

_KNOWN = frozenset(
    {"do", "protocol", "policy", "narrow", "offline", "packages", "session", "keep_tmp", "learn", "gated", "snapshot"}
    | {"times", "metadata", "name", "create", "wait", "once", "mounts"}
)
_MOST_METADATA = 32
_MOST_TEXT = 256


async def read_opening(
    database: Database,
    principal: Principal,
    requested: Header,
    longest: Times,
    progress: Callable[[str], None],
    stores: StoreFinder | None = None,
) -> Opening:
    """UsageError or DeniedError says which of them cannot be had. Only with `stores` there are named sandboxes."""
    if unknown := sorted(set(requested) - _KNOWN):
        raise UsageError(f"the server does not know {unknown[0]!r} of a sandbox; is it older than the client?")
    named = _name_use(requested)
    if named is not None and stores is not None and requested.get("policy") is None:
        name, policy = await own_policy(database, principal, await stores(principal.tenant), named)
    else:
        sent = _mounts(principal, requested)
        name, policy = await find_wanted_policy(database, principal, requested.get("policy"), sent=sent)
    policy = narrow(policy, _mapping(requested, "narrow"), network=not requested.get("offline"))
    if packages := requested.get("packages"):
        _require(principal, Scope.POLICIES)
        policy = add_packages(policy, packages)
    return Opening(
        policy_name=name,
        policy=policy,
        times=_times(_mapping(requested, "times"), longest),
        metadata=_metadata(_mapping(requested, "metadata")),
        session=bool(requested.get("session")),
        keep_tmp=bool(requested.get("keep_tmp")),
        learn=bool(requested.get("learn")),
        gated=_gated(principal, policy, bool(requested.get("gated"))),
        snapshot=_text(requested, "snapshot"),
        named=named,
        mounts=_mounts(principal, requested),
        progress=progress,
    )


def _mounts(principal: Principal, requested: Header) -> Mapping[str, str]:
    """What the client has sent along for mounts of its policy."""
    given = _mapping(requested, "mounts")
    if not given:
        return {}
    _require(principal, Scope.FILES)
    if requested.get("name") is not None:
        raise UsageError("a sandbox with a name has no mounts: their files are here for one use; upload them into it")
    if not all(isinstance(name, str) for name in given.values()):
        raise UsageError("mounts: not names of what was sent")
    return cast("Mapping[str, str]", given)


def _name_use(requested: Header) -> NameUse | None:
    name = _text(requested, "name")
    if name is None:
        return None
    if requested.get("snapshot") is not None or requested.get("packages"):
        raise UsageError("a sandbox with a name begins with its own state, and has the packages of its policy")
    is_own = requested.get("policy") is None
    use = PolicyUse.OWN if is_own else PolicyUse.ONCE if requested.get("once") else PolicyUse.FROM_NOW_ON
    return NameUse(checked_name(name), bool(requested.get("create")), bool(requested.get("wait")), use)


async def own_policy(
    database: Database, principal: Principal, store: SnapshotStore, named: NameUse
) -> tuple[str, Policy]:
    """The policy that a named sandbox was made with.

    It may be one that the catalogue had then, or never had: a key that may not write policies has to do with those of
    today.
    """
    if named.create and not store.has(named.name):
        return "", deny_all()
    policy = store.find(named.name).read_policy()
    if not principal.may(Scope.POLICIES) and not await _is_in_catalogue(database, principal.tenant, policy):
        raise DeniedError(
            f"the policy of sandbox {named.name!r} is not in the catalogue as it is now; give one of the catalogue by "
            "its name, or use a key with the scope 'policies'"
        )
    return policy.name or "", policy


async def _is_in_catalogue(database: Database, tenant: str, policy: Policy) -> bool:
    known = await find_policy(database, tenant, policy.name) if policy.name else None
    # A server that is strict keeps policies strict; that is less, not more.
    alike = [each for found in (known, deny_all()) if found for each in (found, found.override({"strict": True}))]
    return policy.digest in {each.digest for each in alike}


def _gated(principal: Principal, policy: Policy, is_gated: bool) -> bool:
    """That approvals are asked for elsewhere can only be believed of a key that could do without them."""
    return is_gated and (not policy.approvals or principal.may(Scope.POLICIES))


async def find_wanted_policy(
    database: Database,
    principal: Principal,
    wanted: object,
    *,
    scope: Scope | None = Scope.POLICIES,
    sent: Mapping[str, str] | None = None,
) -> tuple[str, Policy]:
    """One of the tenant's catalogue by name. A document of the client's own takes a key with this scope.

    `sent` has the targets of mounts whose files came along.
    """
    if isinstance(wanted, str):
        found = await find_policy(database, principal.tenant, wanted)
        if found is None:
            raise UsageError(f"there is no policy {wanted!r} in the catalogue of {principal.tenant}")
        return wanted, found
    try:
        policy = unpack_recent(wanted) or await beside_the_loop(principal.tenant, lambda: unpack_policy(wanted))
    except FrameError as error:
        raise UsageError(f"{error}: it has its meaning as text, its digest, and a name or none") from error
    if scope is not None and policy.digest != deny_all().digest:
        _require(principal, scope)
    check_tenant_policy(_without_sent(policy, sent or {}), policy.name or "policy")
    return policy.name or "", policy


def _without_sent(policy: Policy, sent: Mapping[str, str]) -> Policy:
    """As far as it still names files of the host; copies can be read and not written."""
    mounts = policy.filesystem.mounts
    if not sent or {mount.target for mount in mounts} != set(sent):
        return policy
    if any(mount.mode != "ro" or mount.sockets for mount in mounts):
        raise UsageError("what is sent along can be mounted to be read alone: mode: ro, without sockets")
    return policy.override({"filesystem": {"mounts": []}})


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


def _mapping(requested: Header, name: str) -> Mapping[str, Any]:
    given = requested.get(name)
    if given is not None and not isinstance(given, dict):
        raise UsageError(f"{name} is not a mapping")
    return cast("dict[str, Any]", given or {})


def _text(requested: Header, name: str) -> str | None:
    given = requested.get(name)
    if given is not None and not isinstance(given, str):
        raise UsageError(f"{name} is not text")
    return given
