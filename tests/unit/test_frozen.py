"""What `@frozen` makes is what `@dataclass(frozen=True, slots=True)` makes."""

from __future__ import annotations

import copy
import inspect
import pickle
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, is_dataclass, replace
from typing import Any, ClassVar

import pytest

from fumehood.frozen import frozen


@frozen
class Ours:
    """A point."""

    kind: ClassVar[str] = "point"
    name: str
    place: tuple[int, ...] = ()
    notes: list[str] = field(default_factory=list[str], compare=False)
    secret: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Theirs:
    """A point."""

    kind: ClassVar[str] = "point"
    name: str
    place: tuple[int, ...] = ()
    notes: list[str] = field(default_factory=list[str], compare=False)
    secret: str = field(default="", repr=False)


BOTH = pytest.mark.parametrize("kind", [Ours, Theirs])


@BOTH
def test_values_are_given_by_place_or_name_and_the_rest_has_defaults(kind: Any) -> None:
    made = kind("a", secret="s")
    assert (made.name, made.place, made.notes, made.secret) == ("a", (), [], "s")
    assert made.notes is not kind("a").notes


@BOTH
@pytest.mark.parametrize(
    ("values", "named"),
    [((), {}), (("a", (), ["x"], "", "too many"), {}), (("a",), {"name": "twice"}), (("a",), {"unknown": 1})],
)
def test_values_that_do_not_fit_are_an_error(kind: Any, values: tuple[object, ...], named: dict[str, object]) -> None:
    with pytest.raises(TypeError):
        kind(*values, **named)


@BOTH
def test_it_cannot_change(kind: Any) -> None:
    made = kind("a")
    with pytest.raises(FrozenInstanceError):
        made.name = "b"
    with pytest.raises(FrozenInstanceError):
        del made.name
    with pytest.raises((FrozenInstanceError, TypeError)):  # which of them it is depends on Python's version
        made.other = 1
    assert made.name == "a"


@BOTH
def test_it_is_equal_by_what_it_holds(kind: Any) -> None:
    assert kind("a", (1,), ["x"]) == kind("a", (1,), ["y"])
    assert kind("a") != kind("b")
    assert hash(kind("a", (1,))) == hash(kind("a", (1,)))
    assert (kind("a") == ("a", (), "")) is False
    assert Ours("a") != Theirs("a")


def test_it_looks_the_same() -> None:
    assert repr(Ours("a", secret="s")) == repr(Theirs("a", secret="s")).replace("Theirs", "Ours")
    assert str(inspect.signature(Ours)) == str(inspect.signature(Theirs)).replace("<factory>", "Ellipsis")
    assert Ours.__doc__ == "A point."
    assert Ours.__match_args__ == Theirs.__match_args__
    assert not hasattr(Ours("a"), "__dict__")


@BOTH
def test_the_functions_for_dataclasses_work(kind: Any) -> None:
    made = kind("a", (1,))
    assert [is_dataclass(kind)] == [True]
    assert kind.__dataclass_params__.frozen
    assert [each.name for each in fields(kind)] == ["name", "place", "notes", "secret"]
    assert replace(made, name="b") == kind("b", (1,))
    assert asdict(made) == {"name": "a", "place": (1,), "notes": [], "secret": ""}


@BOTH
def test_it_can_be_copied_and_pickled(kind: Any) -> None:
    made = kind("a", (1,), ["x"])
    for other in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert (other, other.notes) == (made, ["x"])


@frozen
class Own:
    depth: int = 0

    def __repr__(self) -> str:
        return f"<{self.depth}>"

    def __post_init__(self) -> None:
        if self.depth < 0:
            raise ValueError("negative")


def test_a_class_keeps_its_own_methods() -> None:
    assert repr(Own(2)) == "<2>"
    with pytest.raises(ValueError, match="negative"):
        Own(-1)


def test_it_can_be_matched() -> None:
    match Ours("a", (1,)):
        case Ours(name, place):
            assert (name, place) == ("a", (1,))
        case _:
            raise AssertionError


def test_a_dataclass_can_be_its_child_if_it_is_frozen_as_well() -> None:
    made: Any = dataclass(frozen=True, slots=True)(
        type("Below", (Ours,), {"__annotations__": {"more": "int"}, "more": 1})
    )
    assert (made("a").more, made("a").name) == (1, "a")
    with pytest.raises(TypeError, match="non-frozen"):
        dataclass(type("Loose", (Ours,), {}))
