"""What every part of a policy is made of: a frozen, strict model and the few field types that they share.

Owns the rule that equal meaning is equal data (lists whose order says nothing are kept sorted), which is what makes
digests, differences and equality agree. Knows no key of the policy.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Annotated, Any, Self, TypeVar, cast, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict

from fumehood.frozen import frozen
from fumehood.policy.quantities import Quantity

T = TypeVar("T")
ItemT = TypeVar("ItemT", str, int)


class Section(BaseModel):
    """A part of a policy: cannot change, has no unknown keys, and never guesses a type."""

    # Built at first use, which takes half of the time off an import.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True)

    @classmethod
    def defaults(cls) -> Self:
        """Equal to `cls()`, but without its validator, which takes long to build: defaults are valid as they are."""
        return cls.model_construct()

    @classmethod
    def written_out(cls, word: str) -> str | None:
        """What a single word in its place was probably meant to be."""
        return None


@frozen
class Leaf:
    """One key of a policy that holds a value and no further keys."""

    key: str
    value: object
    quantity: Quantity | None

    @property
    def label(self) -> str:
        """What people call it: `memory` rather than `resources.memory`."""
        return self.key.removeprefix("resources.")


def leaves(section: Section, prefix: str = "") -> Iterator[Leaf]:
    """Every key with its value, sections opened; code that walks them also gets keys that are added later."""
    for name, quantity in _quantities(type(section)):
        value: object = getattr(section, name)
        if isinstance(value, Section):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield Leaf(prefix + name, value, quantity)


@cache
def _quantities(kind: type[Section]) -> tuple[tuple[str, Quantity | None], ...]:
    fields = kind.model_fields.items()
    return tuple((name, _quantity(field.annotation, field.metadata)) for name, field in fields)


def refuse_control_characters(text: str) -> str:
    """Refuses text that a reviewer cannot see: control characters, direction overrides, lone surrogates."""
    if text.isprintable():
        return text
    raise ValueError("must not contain control or invisible characters")


def _require_text(text: str) -> str:
    if text.strip() and len(text) <= 4096:
        return refuse_control_characters(text)
    raise ValueError("must be text of 1 to 4096 characters")


def _as_tuple(value: object) -> object:
    return tuple(cast("list[object]", value)) if isinstance(value, list) else value


def _sort_distinct(items: tuple[ItemT, ...]) -> tuple[ItemT, ...]:
    ordered = sorted(items)
    for first, second in pairwise(ordered):
        if first == second:
            raise ValueError(f"lists {first} twice")
    return tuple(ordered)


def _refuse_empty(items: tuple[T, ...] | None) -> tuple[T, ...] | None:
    # "methods: []" could be read as "none" and as "any"; a policy must not be a riddle.
    if items == ():
        raise ValueError("is an empty list; list what is allowed, or leave the key out to allow any")
    return items


def _quantity(annotation: Any, metadata: list[Any]) -> Quantity | None:
    # In `Size | None` the marker sits on the member of the union, not on the field.
    found = [*metadata, *(mark for member in get_args(annotation) for mark in getattr(member, "__metadata__", ()))]
    return next((mark for mark in found if isinstance(mark, Quantity)), None)


Text = Annotated[str, AfterValidator(_require_text)]
Ordered = Annotated[tuple[T, ...], BeforeValidator(_as_tuple)]
Distinct = Annotated[tuple[ItemT, ...], BeforeValidator(_as_tuple), AfterValidator(_sort_distinct)]
NonEmpty = AfterValidator(_refuse_empty)
