"""How an agent is written: a class with handlers, or functions.

    class Greeter(RuntimeAgent):
        @handles
        async def greet(self, message: Greeting, context: Context) -> Reply:
            return Reply(text=f"Hello {message.name}")

A handler is found by the type of its message. It may leave `context` away, and return nothing.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType, NoneType, UnionType
from typing import Any, ClassVar, Self, TypeVar, Union, get_args, get_origin, get_type_hints

from fumehood.errors import UsageError
from fumehood.runtime.context import Context
from fumehood.runtime.identity import AgentId

_MARK = "__fumehood_handler__"

HandlerT = TypeVar("HandlerT", bound=Callable[..., Awaitable[object]])
Function = Callable[..., Awaitable[object]]


class RuntimeAgent:
    """One for each id, made when the first message for it comes; it handles one message at a time unless registered
    otherwise. All that it knows of the outside is the context that it is given."""

    subscriptions: ClassVar[Sequence[str]] = ()
    """Topics, or patterns of them (`news.*`), that agents of this type want; its grants must have them."""

    reentrant: ClassVar[bool] = True
    """While a handler waits in `context.send`, or for room in a queue, the agent answers questions of those for whom it
    waits, directly or through others. Without, such a question is a LoopError for whoever asks."""

    @classmethod
    def create(cls, id: AgentId) -> Self:
        """The agent of this id, unless `register` was given a `make` for it."""
        return cls()

    async def on_start(self, context: Context) -> None:
        """Before the first message, and after `load_state`."""

    async def on_stop(self) -> None:
        """After the last message. There is nobody to talk to any more."""

    async def save_state(self) -> Mapping[str, object]:
        """What JSON can hold."""
        return {}

    async def load_state(self, state: Mapping[str, object]) -> None:
        """What `save_state` returned, in another life."""


@dataclass(frozen=True, slots=True)
class Handler:
    takes: tuple[type[object], ...]
    returns: tuple[type[object], ...]
    call: Callable[[RuntimeAgent, object, Context], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Signature:
    """What the types of a handler say."""

    takes: tuple[type[object], ...]
    returns: tuple[type[object], ...]
    wants_context: bool


def handles(function: HandlerT, /) -> HandlerT:
    """Mark a method, or a function, as the handler of the message that its first argument's type names."""
    setattr(function, _MARK, _signature(function, sys._getframe(1)))  # pyright: ignore[reportPrivateUsage]
    return function


def handlers_of(kind: type[RuntimeAgent] | Function | Sequence[Function]) -> dict[type[object], Handler]:
    """By the type of message; UsageError when two want the same, or there are none."""
    name = getattr(kind, "__name__", "the agent")
    found: dict[type[object], Handler] = {}
    for handler in _methods(kind) if isinstance(kind, type) else _functions(kind):
        for type_ in handler.takes:
            if type_ in found:
                raise UsageError(f"two handlers of {name} take {type_.__name__}; leave one of them")
            found[type_] = handler
    if not found:
        raise UsageError(f"{name} handles no message; mark its handlers with @handles")
    return found


def _methods(kind: type[RuntimeAgent]) -> Iterator[Handler]:
    seen: set[str] = set()
    # A child that overrides a handler without marking it anew overrides it all the same.
    for cls in kind.__mro__:
        for name, attribute in vars(cls).items():
            signature: Signature | None = getattr(attribute, _MARK, None)
            if signature is not None and name not in seen:
                seen.add(name)
                yield Handler(signature.takes, signature.returns, _calling_method(name, signature.wants_context))


def _calling_method(name: str, wants_context: bool) -> Callable[[RuntimeAgent, object, Context], Awaitable[object]]:
    if wants_context:
        return lambda agent, message, context: getattr(agent, name)(message, context)
    return lambda agent, message, context: getattr(agent, name)(message)


def _functions(kind: Function | Sequence[Function]) -> Iterator[Handler]:
    for function in (kind,) if callable(kind) else kind:
        signature: Signature = getattr(function, _MARK, None) or _signature(function, None)
        yield Handler(signature.takes, signature.returns, _calling_function(function, signature.wants_context))


def _calling_function(
    function: Function, wants_context: bool
) -> Callable[[RuntimeAgent, object, Context], Awaitable[object]]:
    if wants_context:
        return lambda agent, message, context: function(message, context)
    return lambda agent, message, context: function(message)


def _signature(function: Function, frame: FrameType | None) -> Signature:
    name = function.__qualname__
    if not inspect.iscoroutinefunction(function):
        raise UsageError(f"the handler {name} must be an `async def`")
    parameters = _without_self(list(inspect.signature(function).parameters), function)
    if len(parameters) not in (1, 2):
        raise UsageError(f"the handler {name} must take a message and, if it likes, a context")
    hints = _hints(function, name, frame)
    if parameters[0] not in hints:
        raise UsageError(f"the handler {name} needs a type for {parameters[0]!r}, which says what it handles")
    takes, returns = _types(hints[parameters[0]]), _types(hints.get("return", NoneType))
    for each in (*takes, *returns):
        if not isinstance(each, type):
            raise UsageError(f"the handler {name} names {each!r}, which is no type of message")
    return Signature(takes, returns, wants_context=len(parameters) > 1)


def _without_self(parameters: list[str], function: Function) -> list[str]:
    """Whatever it is called: in the body of a class, the first parameter is the agent."""
    around = function.__qualname__.rpartition(".")[0]
    is_method = bool(around) and not around.endswith("<locals>")
    return parameters[1:] if is_method or parameters[:1] == ["self"] else parameters


def _hints(function: Function, name: str, frame: FrameType | None) -> dict[str, Any]:
    """Also types that were defined in a function: the class around the handler is being made right there."""
    names: dict[str, Any] = {}
    around = frame.f_back if frame is not None else None
    for scope in (around, frame):
        if scope is not None:
            names |= scope.f_locals
    try:
        return get_type_hints(function, localns=names)
    except NameError as error:
        raise UsageError(f"a type of the handler {name} is not known where it is defined: {error}") from error


def _types(hint: Any) -> tuple[Any, ...]:
    """The types in `A | B | None`, without None."""
    parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return tuple(part for part in parts if part is not NoneType)
