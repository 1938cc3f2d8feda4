"""Drives objects of the async API from outside of their event loop, by one generic wrapper for each kind of method."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from functools import partial, wraps
from typing import Concatenate, Generic, ParamSpec, Protocol, TypeVar

from fumehood.concurrency.shared_loop import SharedLoop

P = ParamSpec("P")
T = TypeVar("T")
Part = TypeVar("Part")
Target = TypeVar("Target")
CovariantTarget = TypeVar("CovariantTarget", covariant=True)


class Driver(Protocol[CovariantTarget]):
    """Drives an object of the async API from outside of its event loop."""

    @property
    def loop(self) -> SharedLoop: ...

    @property
    def target(self) -> CovariantTarget: ...


def blocking(
    method: Callable[Concatenate[Target, P], Awaitable[T]],
) -> Callable[Concatenate[Driver[Target], P], T]:
    """By its name: a sandbox that is elsewhere has the same methods."""
    name = method.__name__

    @wraps(method)
    def call(self: Driver[Target], *args: P.args, **kwargs: P.kwargs) -> T:
        return self.loop.call(partial(getattr(self.target, name), *args, **kwargs))

    return call


def blocking_part(
    method: Callable[Concatenate[Target, P], Awaitable[T]], kind: Callable[[SharedLoop, T], Part]
) -> Callable[Concatenate[Driver[Target], P], Part]:
    """A blocking method whose result is wrapped in a blocking driver too."""
    name = method.__name__

    @wraps(method)
    def call(self: Driver[Target], *args: P.args, **kwargs: P.kwargs) -> Part:
        return kind(self.loop, self.loop.call(partial(getattr(self.target, name), *args, **kwargs)))

    return call


def blocking_iterator(
    method: Callable[Concatenate[Target, P], AsyncGenerator[T, None]],
) -> Callable[Concatenate[Driver[Target], P], Iterator[T]]:
    name = method.__name__

    @wraps(method)
    def iterate(self: Driver[Target], *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return self.loop.iterate(getattr(self.target, name)(*args, **kwargs))

    return iterate


class DrivenPart(Generic[Target]):
    """Something that belongs to a sandbox and is driven through its loop."""

    def __init__(self, loop: SharedLoop, target: Target) -> None:
        self.loop, self.target = loop, target
