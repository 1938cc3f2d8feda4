"""Keyword arguments that are checked where they are given: an unknown one is an error that names the nearest.

Python would say so itself of a signature that is written out, without the suggestion; of `**options` it says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from inspect import Parameter, Signature, signature
from types import MappingProxyType
from typing import ForwardRef, ParamSpec, TypeVar

from fumehood.errors import UnknownKeywordError

P = ParamSpec("P")
T = TypeVar("T")
_NAMED = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


def known_keywords(
    options: type | None = None,
    elsewhere: Callable[[str], str | None] = lambda name: None,
    defaults: Mapping[str, object] = MappingProxyType({}),
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorates a function whose `**options`, if it has any, are those of a TypedDict.

    `help()` and notebooks then show them one by one, with their `defaults`. `elsewhere` returns advice for a name that
    belongs somewhere else.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        shown = _written_out(signature(function), options, defaults)
        known = frozenset(name for name, each in shown.parameters.items() if each.kind in _NAMED)
        unnamed = shown.parameters.keys() - known

        def place(keyword: str) -> str | None:
            return "give it without its name" if keyword in unnamed else elsewhere(keyword)

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            if not known.issuperset(kwargs):
                raise unknown_keyword(_name(function, args), kwargs, known - {"self"}, place)
            return function(*args, **kwargs)

        vars(call)["__signature__"] = shown
        return call

    return decorate


def known_fields(kind: type[T]) -> type[T]:
    """Decorates a dataclass, whose fields are its keywords."""
    kind.__init__ = known_keywords()(kind.__init__)
    return kind


def _name(function: Callable[..., object], args: tuple[object, ...]) -> str:
    """The function's name; for `__init__`, which may be inherited, that of the class."""
    if function.__name__ == "__init__" and args:
        return type(args[0]).__name__
    return function.__qualname__


def unknown_keyword(
    name: str, given: Iterable[str], known: Iterable[str], elsewhere: Callable[[str], str | None] = lambda name: None
) -> UnknownKeywordError:
    allowed = sorted(known)
    unknown = next(keyword for keyword in given if keyword not in allowed)
    advice = _nearest(unknown, allowed) or elsewhere(unknown) or f"it takes {', '.join(allowed)}"
    return UnknownKeywordError(f"{name}() has no keyword {unknown!r}: {advice}")


def _nearest(unknown: str, allowed: list[str]) -> str | None:
    from difflib import get_close_matches

    found = get_close_matches(unknown.lower(), allowed, n=1)
    return f"did you mean {found[0]!r}?" if found else None


def _written_out(shown: Signature, options: type | None, defaults: Mapping[str, object]) -> Signature:
    if options is None:
        return shown
    plain = [parameter for parameter in shown.parameters.values() if parameter.kind is not Parameter.VAR_KEYWORD]
    written = (_parameter(name, kind, defaults.get(name)) for name, kind in options.__annotations__.items())
    return shown.replace(parameters=[*plain, *written])


def _parameter(name: str, annotation: object, default: object) -> Parameter:
    kind = annotation.__forward_arg__ if isinstance(annotation, ForwardRef) else annotation
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)
