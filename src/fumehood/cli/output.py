"""What `hood` writes: its own messages on standard error, colours and columns, and the program's output.

No byte of a message is one that a terminal obeys. The program's output goes to one of our own standard streams, byte
for byte unless that is a terminal.
"""

from __future__ import annotations

import os

from fumehood.errors import SandboxError

TYPE_CHECKING = False  # as type checkers read it; `hood --help` needs this module, and none of these
if TYPE_CHECKING:
    from collections.abc import Callable

    from fumehood.cli.interruption import Interruption
    from fumehood.results import Denial

GREEN, YELLOW, RED, DIM, BOLD = "32", "33", "31", "2", "1"
COLUMNS = 80
# A pipe that poll calls writable takes so much without blocking (PIPE_BUF).
_CHUNK_BYTES = 4096


def say(text: str) -> None:
    """A message of ours. Names of files and words of a broken sandbox end up in it, so they are made harmless."""
    from contextlib import suppress

    from fumehood.characters import neutralise

    lines = neutralise(text).rstrip("\n").split("\n")
    data = "".join(f"{'hood: ' if number == 0 else '      '}{line}\n" for number, line in enumerate(lines))
    with suppress(OSError):
        os.write(2, data.encode("utf-8", "backslashreplace"))


def print_denials(
    denials: tuple[Denial, ...], remedy_of: Callable[[Denial], str] = lambda denial: denial.remedy
) -> None:
    """One line each. On a terminal that is too narrow for it, the remedy gets a line of its own."""
    width = os.get_terminal_size(2).columns or COLUMNS if os.isatty(2) else None
    for denial in denials:
        times = f" ({denial.count} times)" if denial.count > 1 else ""
        message, remedy = f"denied: {denial.what}: {denial.why}{times}", remedy_of(denial)
        if not remedy:
            say(message)
        elif width is None or len(f"hood: {message}; {remedy}") <= width:
            say(f"{message}; {remedy}")
        else:
            say(f"{message};\n{remedy}")


def paint(text: str, colour: str, descriptor: int = 1) -> str:
    """Coloured if the descriptor is a terminal, unless NO_COLOR says otherwise."""
    return f"\x1b[{colour}m{text}\x1b[0m" if colour and _wants_colour(descriptor) else text


def _wants_colour(descriptor: int) -> bool:
    # https://no-color.org: any value that is not empty.
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and os.isatty(descriptor)


def wrapped(text: str, *, indent: str) -> list[str]:
    """Sentences in the usual width of a terminal."""
    import textwrap

    from fumehood.characters import neutralise

    return textwrap.wrap(
        neutralise(text),
        COLUMNS,
        initial_indent=indent,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=False,
    )


class ProgramOutput:
    """One stream of the program, unbuffered.

    A slow reader slows the program; a reader that went away raises BrokenPipeError.
    """

    def __init__(self, descriptor: int, interruption: Interruption) -> None:
        from fumehood.cli.terminal import TerminalFilter

        self._descriptor = descriptor
        self._interruption = interruption
        self._filter = TerminalFilter() if os.isatty(descriptor) else None

    async def write(self, data: bytes) -> None:
        import anyio

        rest = memoryview(self._filter.feed(data) if self._filter else data)
        while rest:
            if not _is_writable(self._descriptor):
                await anyio.wait_writable(self._descriptor)
            rest = rest[self._write_some(rest[:_CHUNK_BYTES]) :]

    def finish(self) -> None:
        """Leave a terminal as it was, at the end or before a line of ours.

        What it does not take at once (it was stopped with Ctrl-S) it does not get.
        """
        if self._filter and _is_writable(self._descriptor):
            os.write(self._descriptor, self._filter.finish())

    def _write_some(self, data: memoryview) -> int:
        with self._interruption.ending_what_blocks():
            try:
                return os.write(self._descriptor, data)
            except BlockingIOError:
                return 0
            except BrokenPipeError:
                raise
            except OSError as error:
                raise SandboxError(f"the program's output cannot be written: {error.strerror}") from error


def _is_writable(descriptor: int) -> bool:
    import select

    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(0))
