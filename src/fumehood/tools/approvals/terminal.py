"""Asks at the terminal that the process was started from, whatever standard input and output are.

Only keys count that are pressed after everything was shown, one at a time: nothing that was typed ahead or pasted, and
nothing that a program made the terminal say. Ctrl-C, Ctrl-D and a terminal that goes away are a no.
"""

from __future__ import annotations

import os
import shlex
import tempfile
import termios
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import anyio

from fumehood.characters import one_line
from fumehood.errors import UsageError
from fumehood.tools.approvals import pages
from fumehood.tools.approvals.display import COLOURS, Line
from fumehood.tools.approvals.requests import ApprovalAnswer, ApprovalRequest, State

_SUFFIXES = {"python": ".py", "bash": ".sh", "sh": ".sh", "javascript": ".js", "json": ".json"}


def editor_argv(variables: Mapping[str, str]) -> list[str]:
    return shlex.split(variables.get("VISUAL") or variables.get("EDITOR") or "vi")


async def edit(text: str, language: str, terminal: int) -> str:
    """What the text has become; UsageError when the editor fails, and then nothing has changed."""
    argv = editor_argv(os.environ)
    with tempfile.TemporaryDirectory(prefix="hood-edit-") as folder:
        file = Path(folder) / f"call{_SUFFIXES.get(language, '.txt')}"
        _write(file, text)
        try:
            code = await _run([*argv, str(file)], terminal)
        except OSError as error:
            raise UsageError(
                f"the editor {argv[0]!r} cannot be started: {error.strerror}; set EDITOR to one that is there"
            ) from error
        if code != 0:
            raise UsageError(f"the editor {argv[0]!r} exited with {code}, so nothing was changed")
        return _read(file)


async def _run(argv: list[str], terminal: int) -> int:
    process = await anyio.open_process(argv, stdin=terminal, stdout=terminal, stderr=terminal)
    try:
        return await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            with anyio.CancelScope(shield=True):
                await process.wait()


def _write(file: Path, text: str) -> None:
    with open(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600), "wb") as stream:
        stream.write(text.encode("utf-8", "surrogateescape"))


def _read(file: Path) -> str:
    try:
        return file.read_bytes().decode("utf-8", "surrogateescape")
    except OSError as error:
        raise UsageError(f"what the editor left cannot be read: {error.strerror}") from error


_BOLD, _RED, _DIM, _RESET = "1", "31", "2", "\x1b[0m"
_ENDING = (b"\x03", b"\x04", b"")
# Room for what stands below the code on a page.
_ROWS_BELOW = 4
_FEWEST_ROWS = 8


class TerminalPrompt:
    """`ask` is for `Approvals(ask=...)`, the object itself for `listener`."""

    def __init__(self, path: str = "/dev/tty") -> None:
        self._path = path
        self._shown: str | None = None

    def is_there(self) -> bool:
        try:
            os.close(os.open(self._path, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
        except OSError:
            return False
        return True

    def waiting(self, request: ApprovalRequest) -> None:
        """It is shown by `ask`."""

    def settled(self, request: ApprovalRequest) -> None:
        """Show how it ended where it was shown."""
        if self._shown == request.id:
            self._shown = None
            with suppress(OSError), _opened(self._path) as screen:
                colour = _BOLD if request.state is State.APPROVED else _RED
                screen.line(screen.paint(f"{request.id}: {one_line(request.told())}", colour))

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        """None where there is no terminal."""
        if not self.is_there():
            return None
        self._shown = request.id
        try:
            with _opened(self._path) as screen, screen.reading_keys() as reset:
                try:
                    return await _Conversation(screen, request, reset).hold()
                except anyio.get_cancelled_exc_class():
                    screen.line("")  # the question stands there without an answer
                    raise
        except OSError as error:
            return ApprovalAnswer(approved=False, reason=f"the terminal failed: {error.strerror}")


async def ask_yes(question: str, path: str = "/dev/tty") -> bool:
    """Whether a person presses `y` once the question stands there; False where there is no terminal."""
    try:
        with _opened(path) as screen, screen.reading_keys():
            while True:
                screen.ask(f"{question}   y = yes   n = no")
                match await screen.key():
                    case b"y":
                        return True
                    case b"n":
                        return False
                    case key if key in _ENDING:
                        return False
                    case _:
                        screen.line("one key, please")
    except OSError:
        return False


class _Conversation:
    """About one request, until there is an answer."""

    def __init__(self, screen: _Screen, request: ApprovalRequest, reset: Callable[[], None]) -> None:
        self._screen, self._request, self._reset = screen, request, reset
        self._call = request.call
        self._pending: list[Line] = []

    async def hold(self) -> ApprovalAnswer:
        self._show()
        while True:
            self._screen.ask(self._choices())
            match await self._screen.key():
                case b"a" if not self._pending:
                    return self._yes()
                case b"a":
                    self._screen.line(f"{len(self._pending)} lines were not shown yet; m shows more of them")
                case b"d":
                    return ApprovalAnswer(approved=False)
                case key if key in _ENDING:
                    return ApprovalAnswer(approved=False, reason="left without an answer")
                case b"m" if self._pending:
                    self._show_page()
                case b"e":
                    await self._edit()
                case b"i":
                    self._screen.lines(pages.details(self._request, self._call))
                case _:
                    self._screen.line("one key, please")

    def _choices(self) -> str:
        more = f"m = {len(self._pending)} more lines   " if self._pending else "a = approve   "
        return f"{more}d = deny   e = edit   i = details"

    def _yes(self) -> ApprovalAnswer:
        return ApprovalAnswer(
            approved=True, arguments=None if self._call is self._request.call else self._call.arguments
        )

    def _show(self) -> None:
        screen, call = self._screen, self._call
        what = "asks for approval" if call is self._request.call else "edited; this is what you approve"
        screen.line("")
        screen.line(screen.paint(f"{one_line(call.tool)} {what}", _BOLD) + f"   {self._request.id}")
        screen.lines(pages.summary(self._request, call))
        self._pending = pages.code_lines(call, screen.columns)
        self._show_page()

    def _show_page(self) -> None:
        rows = max(_FEWEST_ROWS, self._screen.rows - _ROWS_BELOW)
        page, self._pending = self._pending[:rows], self._pending[rows:]
        for line in page:
            self._screen.numbered(line)

    async def _edit(self) -> None:
        language = self._call.language if self._call.code is not None else "json"
        try:
            self._screen.line("")
            changed = self._call.edited(await edit(self._call.text, language, self._screen.descriptor))
        except UsageError as error:
            self._screen.line(one_line(str(error)))
            return
        finally:
            self._reset()
        self._call = self._request.call if changed.digest == self._request.call.digest else changed
        self._show()


class _Screen:
    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._is_coloured = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self.columns, self.rows = _size(descriptor)

    def paint(self, text: str, colour: str) -> str:
        return f"\x1b[{colour}m{text}{_RESET}" if self._is_coloured and colour else text

    def line(self, text: str) -> None:
        self._write(f"{text}\n")

    def lines(self, texts: Sequence[str]) -> None:
        for text in texts:
            self.line(text)

    def numbered(self, line: Line) -> None:
        number = "" if line.number is None else str(line.number)
        shown = "".join(self.paint(piece.text, COLOURS.get(piece.style, "")) for piece in line.pieces)
        self.line(f"{self.paint(f'{number:>4} |', _DIM)}{' ' if shown else ''}{shown}")

    def ask(self, choices: str) -> None:
        # What was typed before now was meant for something else.
        termios.tcflush(self.descriptor, termios.TCIFLUSH)
        self._write(f"{self.paint(choices, _BOLD)} ? ")

    async def key(self) -> bytes:
        """One key; `?` for several at once, which no person presses; empty when the terminal is gone."""
        await anyio.wait_readable(self.descriptor)
        data = os.read(self.descriptor, 1024)
        if data[1:] in (b"\r", b"\n"):  # a key and Enter, which arrive together over a slow line
            data = data[:1]
        self._write(f"{data.decode('ascii') if data.isalnum() and len(data) == 1 else ''}\n")
        if any(end in data for end in _ENDING if end):
            return b"\x03"
        return data if len(data) <= 1 else b"?"

    @contextmanager
    def reading_keys(self) -> Iterator[Callable[[], None]]:
        """Keys one by one and unseen, Ctrl-C among them; yields what goes back to that after an editor."""
        before = termios.tcgetattr(self.descriptor)
        keys = termios.tcgetattr(self.descriptor)
        keys[3] &= ~(termios.ICANON | termios.ECHO | termios.ISIG)
        keys[6][termios.VMIN], keys[6][termios.VTIME] = 1, 0
        try:
            termios.tcsetattr(self.descriptor, termios.TCSAFLUSH, keys)
            yield lambda: termios.tcsetattr(self.descriptor, termios.TCSAFLUSH, keys)
        finally:
            with suppress(termios.error):
                termios.tcsetattr(self.descriptor, termios.TCSAFLUSH, before)

    def _write(self, text: str) -> None:
        data = text.encode("utf-8", "backslashreplace")
        while data:
            data = data[os.write(self.descriptor, data) :]


@contextmanager
def _opened(path: str) -> Iterator[_Screen]:
    descriptor = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        yield _Screen(descriptor)
    except termios.error as error:
        raise OSError(*error.args) from error
    finally:
        os.close(descriptor)


def _size(descriptor: int) -> tuple[int, int]:
    with suppress(OSError):
        size = os.get_terminal_size(descriptor)
        if size.columns and size.lines:
            return size.columns, size.lines
    return 80, 24
