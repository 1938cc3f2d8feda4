"""A child process that a build needs: watched line by line, and gone with all its relatives when the build ends.

It leads a session of its own, so that a Ctrl-C at a terminal is ours to handle; it dies with us, even if we are killed.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

_HEARTBEAT_SECONDS = 0.1
_CHUNK_BYTES = 64 * 1024
_MAX_SAID_BYTES = 256 * 1024

# Runs in the child before the program takes its place: PR_SET_PDEATHSIG with a signal, unless we are dead already.
_LAUNCH = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, int(sys.argv[2])); "
    "os.getppid() == int(sys.argv[1]) and os.execv(sys.argv[3], sys.argv[3:])"
)


@dataclass(frozen=True, slots=True)
class Ended:
    code: int
    said: str


def run_child(
    command: Sequence[str],
    *,
    python: str,
    variables: Mapping[str, str],
    held: int,
    on_line: Callable[[str], None],
    heartbeat: Callable[[], None],
    farewell_seconds: float = 0.0,
) -> Ended:
    """Run to the end; whatever `heartbeat` raises, several times a second, ends it at once. Keeps `held` open in it.

    One that has to put things away first is asked to end, and killed when it has not in so many seconds.
    """
    last_word = signal.SIGTERM if farewell_seconds else signal.SIGKILL
    process = subprocess.Popen(
        [python, "-I", "-S", "-c", _LAUNCH, str(os.getpid()), str(int(last_word)), *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=dict(variables),
        # No project's configuration: a program that looks for one in the parents of its folder finds none.
        cwd="/",
        pass_fds=(held,),
        start_new_session=True,
    )
    assert process.stderr is not None
    with process.stderr:
        try:
            said = _listen(process, process.stderr.fileno(), on_line, heartbeat)
        finally:
            if farewell_seconds:
                _ask_to_end(process, farewell_seconds)
            _end(process)
    return Ended(process.returncode, said)


def _listen(
    process: subprocess.Popen[bytes], stderr: int, on_line: Callable[[str], None], heartbeat: Callable[[], None]
) -> str:
    said, unfinished = b"", b""
    os.set_blocking(stderr, False)
    exit_notice = os.pidfd_open(process.pid)
    sources = [stderr, exit_notice]
    try:
        while True:
            ready = _wait(sources, _HEARTBEAT_SECONDS)
            heartbeat()
            data = _read(stderr)
            if data == b"" and stderr in sources:
                sources.remove(stderr)
            said = (said + (data or b""))[-_MAX_SAID_BYTES:]
            *lines, unfinished = (unfinished + (data or b"")).split(b"\n")
            for line in filter(None, map(_text, lines)):
                on_line(line)
            # The pipe may never end: a relative of the child's may have inherited it.
            if exit_notice in ready and not data:
                return said.decode("utf-8", "replace")
    finally:
        os.close(exit_notice)


def _wait(descriptors: list[int], seconds: float) -> list[int]:
    """Those that have something. Not select(), which knows the first 1024 descriptors of a process only."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll(seconds * 1000)]


def _read(descriptor: int) -> bytes | None:
    """None when there is nothing yet, nothing when there will be nothing more."""
    try:
        return os.read(descriptor, _CHUNK_BYTES)
    except BlockingIOError:
        return None


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace").strip()


def _ask_to_end(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Without reaping it: its number has to stay its own until its relatives are gone too."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGTERM)
    notice = os.pidfd_open(process.pid)
    try:
        _wait([notice], seconds)
    finally:
        os.close(notice)


def _end(process: subprocess.Popen[bytes]) -> None:
    # Not reaped yet, so the number still is that of our group.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
