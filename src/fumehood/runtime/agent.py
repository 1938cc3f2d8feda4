"""Agents as an application writes them: a class with handlers, or functions, and what `register` keeps of a type.

    class Greeter(RuntimeAgent):
        @handles
        async def greet(self, message: Greeting, context: MessageContext) -> Reply:
            return Reply(text=f"Hello {message.name}")

A handler is chosen by the type of its message. Its `context` argument and its return value are optional.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType, NoneType, UnionType
from typing import Any, ClassVar, Self, TypeVar, Union, get_args, get_origin, get_type_hints

from fumehood.errors import UsageError
from fumehood.runtime.context import MessageContext
from fumehood.runtime.grants import Grants
from fumehood.runtime.identity import AgentId
from fumehood.tools import Tool

_MARK = "__fumehood_handler__"

HandlerT = TypeVar("HandlerT", bound=Callable[..., Awaitable[object]])
Function = Callable[..., Awaitable[object]]


class RuntimeAgent:
    """The base class of agents: one object for each id, created at the first message for that id.

    It handles one message at a time unless registered otherwise, and reaches other agents only through the context that
    comes with a message."""

    subscriptions: ClassVar[Sequence[str]] = ()
    """Topics, or patterns of them (`news.*`), that agents of this type receive; its grants must allow them."""

    reentrant: ClassVar[bool] = True
    """While a handler waits in `context.send`, or for room in a queue, the agent handles requests from the agents that
    it waits for, directly or through others. If False, such a request raises LoopError in its sender."""

    @classmethod
    def create(cls, id: AgentId) -> Self:
        """The agent of this id, unless `register` was given a `make` for it."""
        return cls()

    async def on_start(self, context: MessageContext) -> None:
        """Called before the first message, and after `load_state`."""

    async def on_stop(self) -> None:
        """Called after the last message; messages can no longer be sent."""

    async def save_state(self) -> Mapping[str, object]:
        """The state, as JSON data."""
        return {}

    async def load_state(self, state: Mapping[str, object]) -> None:
        """Restores what `save_state` returned in an earlier runtime."""


Call = Callable[[RuntimeAgent, object, MessageContext], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Handler:
    """One handler: which messages it takes and returns, and how it is called."""

    takes: tuple[type[object], ...]
    returns: tuple[type[object], ...]
    call: Call


@dataclass(frozen=True, slots=True)
class Signature:
    """What the annotations of a handler declare."""

    takes: tuple[type[object], ...]
    returns: tuple[type[object], ...]
    wants_context: bool


Make = Callable[[AgentId], RuntimeAgent | Awaitable[RuntimeAgent]]


@dataclass(slots=True)
class Registration:
    """One registered type of agents."""

    type: str
    handlers: Mapping[type[object], Handler]
    takes: frozenset[str]
    """Names of messages."""
    make: Make
    kind: type[RuntimeAgent]
    tools: tuple[Tool, ...]
    at_once: int
    is_reentrant: bool
    is_redelivered: bool
    grants: Grants


def handles(function: HandlerT, /) -> HandlerT:
    """Mark a method, or a function, as the handler of the message that its first argument's type names."""
    setattr(function, _MARK, _signature(function, sys._getframe(1)))  # pyright: ignore[reportPrivateUsage]
    return function


def handlers_of(kind: type[RuntimeAgent] | Function | Sequence[Function]) -> dict[type[object], Handler]:
    """The handlers by type of message; raises UsageError when two take the same type, or there are none."""
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


def _calling_method(name: str, wants_context: bool) -> Call:
    if wants_context:
        return lambda agent, message, context: getattr(agent, name)(message, context)
    return lambda agent, message, context: getattr(agent, name)(message)


def _functions(kind: Function | Sequence[Function]) -> Iterator[Handler]:
    for function in (kind,) if callable(kind) else kind:
        signature: Signature = getattr(function, _MARK, None) or _signature(function, None)
        yield Handler(signature.takes, signature.returns, _calling_function(function, signature.wants_context))


def _calling_function(function: Function, wants_context: bool) -> Call:
    if wants_context:
        return lambda agent, message, context: function(message, context)
    return lambda agent, message, context: function(message)


def _signature(function: Function, frame: FrameType | None) -> Signature:
    name = function.__qualname__
    if not inspect.iscoroutinefunction(function):
        raise UsageError(f"the handler {name} must be an `async def`")
    parameters = _without_self(list(inspect.signature(function).parameters), function)
    if len(parameters) not in (1, 2):
        raise UsageError(f"the handler {name} must take a message and optionally a context")
    hints = _hints(function, name, frame)
    if parameters[0] not in hints:
        raise UsageError(
            f"the handler {name} needs a type annotation for {parameters[0]!r}: the message that it handles"
        )
    takes, returns = _types(hints[parameters[0]]), _types(hints.get("return", NoneType))
    for each in (*takes, *returns):
        if not isinstance(each, type):
            raise UsageError(f"the handler {name} names {each!r}, which is not a type")
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
