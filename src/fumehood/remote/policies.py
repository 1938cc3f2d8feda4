"""A policy on its way: what it means, which has to be the same for both ends."""

from __future__ import annotations

from functools import lru_cache
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
    given = cast("Header", header) if isinstance(header, dict) else {}
    meaning, name = given.get("meaning"), given.get("name")
    if not isinstance(meaning, str) or not (name is None or isinstance(name, str)):
        raise FrameError("a policy that is not complete")
    if len(meaning) > _MOST_CHARACTERS:
        raise UsageError(f"a policy means at most {_MOST_CHARACTERS} characters")
    policy = (_read_again if len(meaning) <= _MOST_KEPT_CHARACTERS else Policy.of_meaning)(meaning, name)
    if policy.digest != given.get("digest"):
        raise UsageError("the policy means something else to the other end; use the same version of Fumehood at both")
    return policy


@lru_cache(_MOST_KEPT)
def _read_again(meaning: str, name: str | None) -> Policy:
    """Most openings are of few policies, and to read one takes longer than everything else that an opening asks for."""
    return Policy.of_meaning(meaning, name)
