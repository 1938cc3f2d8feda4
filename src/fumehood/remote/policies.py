"""A policy on its way: what it means, which has to be the same for both ends."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import cast

from fumehood.errors import UsageError
from fumehood.guest.contract.frames import FrameError, Header
from fumehood.policy import AnyPolicy, Policy, read_policy

_MOST_CHARACTERS = 1024 * 1024
_MOST_KEPT, _MOST_KEPT_CHARACTERS = 64, 64 * 1024


def pack_policy(policy: Policy) -> Header:
    return {"meaning": policy.meaning.decode("ascii"), "name": policy.name, "digest": policy.digest}


def wanted_policy(policy: AnyPolicy) -> Header | str:
    """A name alone is the catalogue's; what is a file of this machine is read here."""
    if isinstance(policy, str) and "/" not in policy and not policy.endswith((".yaml", ".yml")):
        return policy
    return pack_policy(read_policy(policy))


def unpack_policy(header: object) -> Policy:
    """Reading one takes longer than everything else that an opening asks for, and most openings are of few policies."""
    recent = unpack_recent(header)
    if recent is not None:
        return recent
    meaning, name, digest = _fields(header)
    policy = Policy.of_meaning(meaning, name)
    _recent.keep((meaning, name), policy)
    return _checked(policy, digest)


def unpack_recent(header: object) -> Policy | None:
    """Takes no time worth mentioning: None for a policy that was not read lately."""
    meaning, name, digest = _fields(header)
    policy = _recent.find((meaning, name))
    return None if policy is None else _checked(policy, digest)


def _fields(header: object) -> tuple[str, str | None, object]:
    given = cast("Header", header) if isinstance(header, dict) else {}
    meaning, name = given.get("meaning"), given.get("name")
    if not isinstance(meaning, str) or not (name is None or isinstance(name, str)):
        raise FrameError("a policy that is not complete")
    if len(meaning) > _MOST_CHARACTERS:
        raise UsageError(f"a policy means at most {_MOST_CHARACTERS} characters")
    return meaning, name, given.get("digest")


def _checked(policy: Policy, digest: object) -> Policy:
    if policy.digest != digest:
        raise UsageError("the policy means something else to the other end; use the same version of Fumehood at both")
    return policy


class _RecentPolicies:
    """By their whole text and name. They are frozen, so tenants can share them; threads may ask at the same time."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str | None], Policy] = OrderedDict()
        self._lock = Lock()

    def find(self, text: tuple[str, str | None]) -> Policy | None:
        with self._lock:
            if (found := self._kept.get(text)) is not None:
                self._kept.move_to_end(text)
            return found

    def keep(self, text: tuple[str, str | None], policy: Policy) -> None:
        if len(text[0]) > _MOST_KEPT_CHARACTERS:
            return
        with self._lock:
            self._kept[text] = policy
            if len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)


_recent = _RecentPolicies()
