"""The session's loop: it receives a source, runs it, and sends its end. Survives what user code does to itself."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from os import _exit as leave
from typing import NamedTuple, NoReturn, Protocol, TypeVar

from ...contract.frames import FrameError, FrameSocket, Header
from .. import shutdown, user_site
from . import ipython, stdio, tracebacks
from .figures import Figures
from .interrupts import InterruptGate
from .plain import PlainShell
from .publisher import Publisher

T = TypeVar("T")

_FAILED = 1
_INTERRUPTED = 130


class Shell(Protocol):
    @property
    def name(self) -> str: ...

    def run(self, source: bytes, number: int) -> BaseException | None:
        """What ended it, shown already, or None."""
        ...


class End(NamedTuple):
    ended: str
    code: int
    exhausted: str = ""


def serve(conversation: FrameSocket, last_preloaded: str, scratch: str, folders: Sequence[str]) -> NoReturn:
    """Until the host hangs up. `scratch` is a folder of the session's own, outside of the workspace.

    `folders` are where the user's own modules are; nothing of the session's is imported from there.
    """
    session = _Session(conversation, scratch)
    sys.path[:0] = folders
    user_site.join_path()
    code = session.serve()
    leave(shutdown.finish(last_preloaded, code) & 0xFF)


class _Session:
    def __init__(self, conversation: FrameSocket, scratch: str) -> None:
        _forget_script()
        self._conversation = conversation
        self._gate = InterruptGate()
        self._publisher = Publisher(conversation, self._gate)
        self._figures = Figures(self._publisher.publish)
        self._shell: Shell = (
            ipython.make_shell(self._gate, self._publisher, self._figures, scratch)
            or PlainShell(self._gate, self._publisher, self._figures)
        )  # fmt: skip
        self._figures.watch()

    def serve(self) -> int:
        """Returns the exit code: of a child that the user's code has forked, its own."""
        self._publisher.say({"ready": self._shell.name})
        while (message := self._receive()) is not None:
            header, body = message
            end = self._execute(header, body)
            if not self._publisher.is_ours:
                self._gate.open_for_good()
                return end.code
            self._publisher.say({"done": header["run"], **end._asdict()})
        self._gate.open_for_good()
        return 0

    def _receive(self) -> tuple[Header, bytes] | None:
        while True:
            try:
                return self._conversation.receive()
            except (OSError, FrameError, MemoryError):
                return None
            except BaseException:  # from a handler of the user's for some signal
                continue

    def _execute(self, header: Header, body: bytes) -> End:
        source, data = body[: header["source_bytes"]], body[header["source_bytes"] :]
        self._gate.expect()
        self._publisher.say({"started": header["run"]})
        error = self._gate.call(partial(stdio.prepare, data), is_open=False) or self._shell.run(source, header["run"])
        late = self._gate.call(self._wind_up)
        if late is not None:
            self._gate.call(partial(tracebacks.show, late))
        return self._end_of(error or late)

    def _wind_up(self) -> None:
        try:
            if self._publisher.is_ours:
                self._figures.end_run()
        finally:
            stdio.flush()

    def _end_of(self, error: BaseException | None) -> End:
        match error:
            case None:
                return End("ok", 0)
            case SystemExit():
                return End("exit", self._result(partial(shutdown.exit_code, error), _FAILED))
            case KeyboardInterrupt():
                return End("interrupted", _INTERRUPTED)
            case _:
                return End("error", _FAILED, self._result(partial(shutdown.kind_of_exhaustion, error), ""))

    def _result(self, work: Callable[[], T], otherwise: T) -> T:
        """The result of work that calls the user's methods, or `otherwise` if they fail."""
        results: list[T] = []
        self._gate.call(lambda: results.append(work()))
        return results[0] if results else otherwise


def _forget_script() -> None:
    """Removes the file of `__main__`, which has none in an interactive interpreter."""
    main = vars(sys.modules["__main__"])
    main.pop("__file__", None)
    main.pop("__cached__", None)
    main["__loader__"] = None
