"""What of a policy is enforced: its digest, and the controls that it asks for beyond the deny-all default."""

from __future__ import annotations

import hashlib
import json
from typing import Any, cast

from fumehood.policy.section import Section, leaves

# Neither changes what is enforced, so neither may separate two sandboxes or revoke an approval.
UNENFORCED = frozenset({"name", "tests"})
# Who runs it, what it is called and what it says of itself are not controls; `strict` is how a backend answers to them;
# `audit`, `approvals` and `filters` are enforced above the backends, the same for all.
_NOT_CONTROLS = frozenset({"version", "name", "backend", "strict", "tests", "audit", "approvals", "filters"})
# Sections that a backend enforces as a whole or not at all.
_WHOLE = frozenset({"commands", "docker"})


def compute_digest(policy: Section) -> str:
    """SHA-256 over canonical JSON; the models keep equal meaning as equal data, so equal meaning is an equal digest."""
    return digest_meaning(canonical_meaning(policy))


def digest_meaning(meaning: bytes) -> str:
    return "sha256:" + hashlib.sha256(meaning).hexdigest()


def canonical_meaning(policy: Section) -> bytes:
    """What the digest is a digest of."""
    meaning = {key: _as_json(getattr(policy, key)) for key in type(policy).model_fields if key not in UNENFORCED}
    return json.dumps(meaning, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode(
        "ascii"
    )


def _as_json(value: object) -> object:
    """As pydantic's `model_dump(mode="json")` has it, whose serializer would have to be built first."""
    match value:
        case Section():
            return {key: _as_json(getattr(value, key)) for key in type(value).model_fields}
        case tuple():
            return [_as_json(item) for item in cast("tuple[object, ...]", value)]
        case None | bool() | int() | float() | str():
            return value
        case _:
            raise TypeError(f"a policy cannot hold a {type(value).__name__}")


def controls(policy: Section) -> list[str]:
    """The keys that differ from the default, in the order of the file format; empty for a policy that denies all.

    A backend refuses those that it cannot enforce.
    """
    found: dict[str, None] = {}
    for leaf, default in zip(leaves(policy), leaves(type(policy).defaults()), strict=True):
        section = leaf.key.partition(".")[0]
        if leaf.value != default.value and section not in _NOT_CONTROLS:
            found[section if section in _WHOLE else leaf.key] = None
    return list(found)


def read_meaning(meaning: str | bytes) -> dict[str, Any]:
    """The keys of a policy that means this. Those without a value, which a policy does not take, mean their default."""
    return _without_nothing(json.loads(meaning))


def _without_nothing(value: Any) -> Any:
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return {key: _without_nothing(item) for key, item in items if item is not None}
    return [_without_nothing(item) for item in cast("list[Any]", value)] if isinstance(value, list) else value
