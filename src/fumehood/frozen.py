"""`@frozen` makes what `@dataclass(frozen=True, slots=True)` makes, without source that is compiled for each class.

`dataclass` writes and compiles six methods for a class, which takes longer than the rest of most imports: this is for
modules that every `hood run` imports. Here `dataclass` only finds the fields and makes the slots; the methods are the
same functions for all classes. `fields`, `replace` and `asdict` of `dataclasses` work as usual.
"""

from __future__ import annotations

from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, dataclass_transform

if TYPE_CHECKING:
    from inspect import Signature

T = TypeVar("T")
_set = object.__setattr__


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(kind: type[T]) -> type[T]:
    """A class whose annotations are its fields. A method that it defines itself is kept.

    Its children, if it has any, are frozen dataclasses of the usual kind.
    """
    for name, method in _METHODS.items():
        if name not in kind.__dict__:
            setattr(kind, name, method)
    if kind.__doc__ is None:
        kind.__doc__ = f"A {kind.__name__}."  # `dataclass` would make one of the signature, which takes long
    made: Any = dataclass(init=False, repr=False, eq=False, slots=True)(kind)
    made.__dataclass_params__.frozen = True  # by a method of ours; children and readers have to know
    return made


def _init(self: Any, *values: object, **named: object) -> None:
    names: tuple[str, ...] = self.__match_args__
    if len(values) > len(names):
        raise TypeError(f"{type(self).__name__} has {len(names)} fields, and {len(values)} values were given")
    for name, value in zip(names, values, strict=False):
        if name in named:
            raise TypeError(f"{type(self).__name__} was given {name!r} twice")
        _set(self, name, value)
    for name in names[len(values) :]:
        _set(self, name, named.pop(name) if name in named else _default(self, name))
    if named:
        raise TypeError(f"{type(self).__name__} has no field {next(iter(named))!r}")
    if hasattr(self, "__post_init__"):
        self.__post_init__()


def _default(self: Any, name: str) -> object:
    details: Field[object] = self.__dataclass_fields__[name]
    if details.default is not MISSING:
        return details.default
    if details.default_factory is not MISSING:
        return details.default_factory()
    raise TypeError(f"{type(self).__name__} needs {name!r}")


def _compared(self: Any) -> tuple[object, ...]:
    return tuple(getattr(self, each.name) for each in fields(self) if each.compare)


def _eq(self: Any, other: Any) -> bool:
    return _compared(self) == _compared(other) if type(self) is type(other) else NotImplemented


def _hash(self: Any) -> int:
    return hash(_compared(self))


def _repr(self: Any) -> str:
    shown = ", ".join(f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
    return f"{type(self).__qualname__}({shown})"


def _refuse_set(self: object, name: str, value: object) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_delete(self: object, name: str) -> NoReturn:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _getstate(self: Any) -> list[object]:
    return [getattr(self, each.name) for each in fields(self)]


def _setstate(self: Any, state: list[object]) -> None:
    for each, value in zip(fields(self), state, strict=True):
        _set(self, each.name, value)


class _Signature:
    """The parameters of a class, for `help` and notebooks."""

    def __get__(self, _: object, kind: Any) -> Signature:
        from inspect import Parameter, Signature

        def default(each: Field[Any]) -> object:
            made = each.default if each.default_factory is MISSING else ...
            return Parameter.empty if made is MISSING else made

        return Signature(
            [
                Parameter(each.name, Parameter.POSITIONAL_OR_KEYWORD, default=default(each), annotation=each.type)
                for each in fields(kind)
            ],
            return_annotation=None,
        )


_METHODS: dict[str, object] = {
    "__init__": _init,
    "__eq__": _eq,
    "__hash__": _hash,
    "__repr__": _repr,
    "__setattr__": _refuse_set,
    "__delattr__": _refuse_delete,
    "__getstate__": _getstate,
    "__setstate__": _setstate,
    "__signature__": _Signature(),
}
