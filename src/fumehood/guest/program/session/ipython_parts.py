"""IPython's classes, made ours: where output goes, how a run ends, what is not kept.

They are made by functions, because their bases do not exist before IPython is imported.
"""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from ...contract.ipython import PACKAGE
from . import tracebacks
from .event_loop import EventLoop
from .interrupts import InterruptGate
from .publisher import Publisher


def import_part(name: str) -> Any:
    return importlib.import_module(f"{PACKAGE}.{name}")


def shell_class(gate: InterruptGate, publisher: Publisher, event_loop: EventLoop) -> Any:
    base: Any = import_part("core.interactiveshell").InteractiveShell

    class ExitAutocall(import_part("core.autocall").ExitAutocall):
        def __call__(self, code: object = None) -> None:
            raise SystemExit(code)

    class SessionShell(base):
        displayhook_class = _displayhook_class(publisher)
        display_pub_class = _publisher_class(publisher)

        def _exiter_default(self) -> Any:
            return ExitAutocall(self)

        async def run_code(self, *arguments: Any, **options: Any) -> bool:
            was_open = gate.open()
            try:
                return await base.run_code(self, *arguments, **options)
            finally:
                gate.close(was_open)

        @contextmanager
        def _tee(self, channel: str) -> Iterator[None]:
            """IPython would keep all that was ever written, for a notebook to be made of it."""
            yield

        def ask_exit(self) -> None:
            raise SystemExit

        def system(self, cmd: str) -> None:
            """Straight into the program's own output. Unlike IPython's, it lets an interrupt end the run."""
            self.user_ns["_exit_code"] = _call_system(gate, self.var_expand(cmd, depth=1))

        def enable_matplotlib(self, gui: str | None = None) -> tuple[str | None, str]:
            """Figures are shown already, whatever `%matplotlib` asks for."""
            return gui, "inline"

        def enable_gui(self, gui: str | None = None) -> None:
            return None

        def showtraceback(self, exc_tuple: Any = None, *arguments: Any, **options: Any) -> None:
            error = exc_tuple[1] if exc_tuple else sys.exc_info()[1]
            if isinstance(error, SystemExit):
                return
            shown = event_loop.interruption_of(error)
            if shown is not None:
                tracebacks.hide_our_frames(shown)
                exc_tuple = (type(shown), shown, shown.__traceback__)
            base.showtraceback(self, exc_tuple, *arguments, **options)

        def _showtraceback(self, etype: Any, evalue: Any, stb: list[str]) -> None:
            print(self.InteractiveTB.stb2text(stb), file=sys.stderr)

    return SessionShell


def _call_system(gate: InterruptGate, command: str) -> int:
    process: subprocess.Popen[bytes] | None = None
    try:
        # A group of its own: an interrupt that reaches us alone has to end the command and what it has started.
        gate.close(False)
        try:
            process = subprocess.Popen(command, shell=True, process_group=0)  # noqa: S602
        finally:
            gate.open()
        return process.wait()
    except KeyboardInterrupt:
        if process is not None:
            _kill_group(process)
        raise KeyboardInterrupt from None


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _displayhook_class(publisher: Publisher) -> Any:
    class SessionDisplayHook(import_part("core.displayhook").DisplayHook):
        def write_output_prompt(self) -> None:
            return None

        def write_format_data(self, format_dict: dict[str, object], md_dict: dict[str, object] | None = None) -> None:
            publisher.publish(format_dict, md_dict or {})

        def log_output(self, format_dict: dict[str, object]) -> None:
            """Kept by the host, if by anyone."""

        def finish_displayhook(self) -> None:
            self._is_active = False

    return SessionDisplayHook


def _publisher_class(publisher: Publisher) -> Any:
    class SessionDisplayPublisher(import_part("core.displaypub").DisplayPublisher):
        def publish(
            self, data: dict[str, object], metadata: dict[str, object] | None = None, *_: Any, **__: Any
        ) -> None:
            publisher.publish(data, metadata or {})

        def clear_output(self, wait: bool = False) -> None:
            return None

    return SessionDisplayPublisher
