"""The shell of an environment without IPython: the same results, from the standard library alone."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Mapping
from functools import partial
from types import CodeType
from typing import Any, cast

from . import displays, tracebacks
from .compiler import Compiler
from .event_loop import EventLoop
from .figures import Figures
from .interrupts import InterruptGate
from .publisher import Publisher

_IS_COROUTINE = 0x80  # inspect.CO_COROUTINE, without importing inspect


class PlainShell:
    name = "plain"

    def __init__(self, gate: InterruptGate, publisher: Publisher, figures: Figures) -> None:
        self._gate, self._publisher, self._figures = gate, publisher, figures
        self._compiler = Compiler()
        self._event_loop = EventLoop(gate)
        self._namespace: dict[str, Any] = vars(sys.modules["__main__"])
        sys.displayhook = self._make_displayhook()
        setattr(builtins, "display", self._make_display())  # noqa: B010 - not in the type

    def run(self, source: bytes, number: int) -> BaseException | None:
        """What ended it, shown already, or None."""
        error = self._gate.call(partial(self._execute, source, f"<run {number}>"))
        if error is None or isinstance(error, SystemExit):
            return error
        if self._gate.call(partial(tracebacks.show, error)) is not None:
            tracebacks.show_briefly(error)
        return error

    def _execute(self, source: bytes, name: str) -> None:
        # Where each run starts at line 1, a warning in this one is not one that was shown before.
        self._namespace.pop("__warningregistry__", None)
        parts = self._compiler.compile(source, name)
        if any(part.co_flags & _IS_COROUTINE for part in parts):
            value = self._event_loop.run(self._evaluate_in_loop(parts))
        else:
            value = None
            for part in parts:
                value = eval(part, self._namespace)  # noqa: S307
        sys.displayhook(value)

    async def _evaluate_in_loop(self, parts: list[CodeType]) -> object:
        value = None
        for part in parts:
            value = eval(part, self._namespace)  # noqa: S307
            if part.co_flags & _IS_COROUTINE:
                value = await value
        return value

    def _show_value(self, value: object) -> None:
        if not displays.displays_itself(value):
            self._publisher.publish(*displays.represent(value, self._figures.render))

    def _make_displayhook(self) -> Any:
        def displayhook(value: object) -> None:
            if value is not None:
                self._show_value(value)
                setattr(builtins, "_", value)  # noqa: B010 - as the interpreter does it

        return _disguised(displayhook)

    def _make_display(self) -> Any:
        def display(
            *objects: object, raw: bool = False, metadata: Mapping[str, object] | None = None, **_: object
        ) -> None:
            """Show objects as rich results of this run; with raw=True each is a mapping of media types already."""
            for value in objects:
                if raw and isinstance(value, Mapping):
                    self._publisher.publish(cast("Mapping[str, object]", value), metadata or {})
                elif not metadata:
                    self._show_value(value)
                else:
                    data, details = displays.represent(value, self._figures.render)
                    self._publisher.publish(data, {**details, **metadata})

        return _disguised(display)


def _disguised(function: Any) -> Any:
    """Renames a function as a builtin: its module does not exist in the sandbox."""
    function.__module__, function.__qualname__ = "builtins", function.__name__
    return function
