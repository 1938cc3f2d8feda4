"""`hood` without the half second that its imports take: one process has done them, and forks for each command.

A command is a process of its own all the same, with its own streams, variables, folder and session, and does what
`python -m fumehood` does from its first line on. That is started as it is (`cli_host.HOOD`) where variables would make
another interpreter of it, and where a keeper does the run, whose clients import next to nothing.

`hood mcp` has a process of its own to fork from, which has imported the protocol's SDK as well. `Client` of that SDK
starts its server by a command: `handover.py`, which gives its streams to such a process and ends as the server does.
"""

from __future__ import annotations

import fcntl
import inspect
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

START = b"start"
_STREAMS = 3
_STATUS_BYTES = 32
# With other values of these, an interpreter starts as another one.
_OF_INTERPRETER = ("PYTHON", "LC_", "LANG")


class LoadedHood(subprocess.Popen[bytes]):
    """A command under way, like any other process that `Popen` starts; its server sends how it ended."""

    def __init__(self, arguments: Iterable[str | Path], *, owns_terminal: bool = False, **options: Any) -> None:
        self._owns_terminal = owns_terminal
        super().__init__([*map(str, arguments)], **options)

    def _execute_child(self, *values: Any) -> None:
        given = inspect.signature(super()._execute_child).bind(*values).arguments
        pipes = [given[name] for name in ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")]
        streams = [own if pipe == -1 else pipe for own, pipe in enumerate((pipes[0], pipes[3], pipes[5]))]
        request = {
            "arguments": given["args"],
            "environment": dict(os.environ if given["env"] is None else given["env"]),
            "folder": os.fspath(given["cwd"] or os.getcwd()),
            "owns_terminal": self._owns_terminal,
            "ignored": [number for number in signal.valid_signals() if signal.getsignal(number) is signal.SIG_IGN],
        }
        self._status, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, open(os.memfd_create("request"), "w+b") as file:
            file.write(json.dumps(request).encode())
            file.flush()
            loaded = _server(is_mcp=given["args"][:1] == ["mcp"])
            socket.send_fds(loaded, [START], [theirs.fileno(), file.fileno(), *streams])
        self.pid = int(self._status.recv(_STATUS_BYTES))
        self._child_created = True
        self._close_pipe_fds(*pipes)

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        try:
            return self.pid, int(self._status.recv(_STATUS_BYTES, socket.MSG_DONTWAIT if wait_flags else 0))
        except BlockingIOError:
            return 0, 0

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        if self.returncode is None:
            process, status = self._try_wait(os.WNOHANG)
            if process:
                self._handle_exitstatus(status)
        return self.returncode

    def _handle_exitstatus(self, sts: int, *rest: Any) -> None:
        super()._handle_exitstatus(sts, *rest)
        self._status.close()


def can_start(environment: Mapping[str, str] | None) -> bool:
    wanted = os.environ if environment is None else environment
    return wanted.get("FUMEHOOD_KEEPER") == "off" and _of_interpreter(wanted) == _of_interpreter(os.environ)


def _of_interpreter(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_OF_INTERPRETER)}


@cache
def _server(*, is_mcp: bool) -> socket.socket:
    """The connection to the server, which ends with us. It is no descendant of ours: tests count those."""
    ours, theirs = socket.socketpair()
    with theirs:
        command = [sys.executable, __file__, str(theirs.fileno()), address(is_mcp=is_mcp), *(["mcp"] if is_mcp else [])]
        subprocess.run(command, pass_fds=[theirs.fileno()], check=True)
    return ours


@cache
def address(*, is_mcp: bool) -> str:
    """Where programs reach the server; in a folder that nobody else may enter."""
    return str(Path(tempfile.mkdtemp(prefix="hood-mcp-" if is_mcp else "hood-loaded-")) / "socket")


def handover(*, is_mcp: bool = False) -> list[str]:
    """The command that hands over to the server; what `hood` is to be given comes behind it."""
    _server(is_mcp=is_mcp)
    return [sys.executable, "-I", "-S", str(Path(__file__).with_name("handover.py")), address(is_mcp=is_mcp)]


def serve(requests: socket.socket, listener: socket.socket) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps those that wait for a command
    while True:
        ready, _, _ = select.select([requests, listener], [], [])
        if requests in ready and not _serve_one(requests):
            return
        if listener in ready:
            connection, _ = listener.accept()
            with connection:
                _serve_one(connection)


def _serve_one(requests: socket.socket) -> bool:
    message, descriptors, _, _ = socket.recv_fds(requests, len(START), 2 + _STREAMS)
    if message and os.fork() == 0:
        requests.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _start_and_wait(*descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
    return bool(message)


def _start_and_wait(status: int, request: int, *streams: int) -> NoReturn:
    with open(request, "rb") as file:
        file.seek(0)
        wanted = json.load(file)
    process = os.fork()
    if process == 0:
        _become(wanted, streams)
    for stream in streams:
        os.close(stream)
    os.write(status, b"%d" % process)
    end = os.pidfd_open(process)
    if end not in select.select([end, status], [], [])[0]:
        os.kill(process, signal.SIGKILL)  # who wanted to know how it ends has ended
    ended = os.waitpid(process, 0)[1]
    with suppress(OSError):
        os.write(status, b"%d" % ended)
    os._exit(0)


def _become(request: dict[str, Any], streams: tuple[int, ...]) -> NoReturn:
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.closerange(_STREAMS, os.sysconf("SC_OPEN_MAX"))
    if request["owns_terminal"]:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    for number in request["ignored"]:
        signal.signal(number, signal.SIG_IGN)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv, sys.path[0] = ["hood", *request["arguments"]], request["folder"]
    _open_streams()
    import fumehood_client

    fumehood_client.main()


def _open_streams() -> None:
    """As an interpreter does at its start."""
    sys.stdin = sys.__stdin__ = os.fdopen(0, closefd=False)
    sys.stdout = sys.__stdout__ = os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.__stderr__ = os.fdopen(2, "w", errors="backslashreplace", closefd=False)
    sys.stderr.reconfigure(line_buffering=True)


def load() -> None:
    """What a command imports; the first four not before it does something."""
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"  # as `hood` does
    import anyio._backends._asyncio
    import anyio.streams.tls

    import fumehood.backends.native.backend
    import fumehood.cli.terminal
    from fumehood.cli import entry
    from fumehood.cli.commands import COMMANDS

    assert all((anyio, fumehood, entry))
    for command in COMMANDS:
        command.load()


def listen(address: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    return listener


def main(descriptor: str, address: str, kind: str = "") -> None:
    requests, listener = socket.socket(fileno=int(descriptor)), listen(address)
    if os.fork() == 0:
        load()
        if kind == "mcp":
            import fumehood.integrations.mcp.http
            import fumehood.integrations.mcp.stdio

            assert fumehood
        serve(requests, listener)
        shutil.rmtree(Path(address).parent)
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
