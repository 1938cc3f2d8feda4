"""`hood`, and programs that import `fumehood`, without the seconds of imports: a process has done them, and forks.

A command is a process of its own all the same, with its own streams, variables, folder and session, and does what
`python -m fumehood` or `python PROGRAM` does from its first line on. That is started as it is (`cli_host.HOOD`) where
variables would make another interpreter of it, and where a keeper does the run, whose clients import next to nothing.

There are three such processes, of which each has imported more than the one before: `hood`; the SDK of the Model
Context Protocol (`mcp`); the frameworks of all integrations (`frameworks`). All who test at the same time share them:
they begin when they are first needed and end with the process that began the tests, which `conftest.py` names. What
somebody else starts by a command, such as a client of MCP its server, is `handover.py`, which gives its streams to such
a process and ends as the command does.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
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
import traceback
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, NoReturn

Kind = Literal["hood", "mcp", "frameworks"]
START = b"start"
# The folder of the processes' sockets, and the process that they end with.
PLACE, OWNER = "FUMEHOOD_TESTS_LOADED", "FUMEHOOD_TESTS_OWNER"
_STREAMS = 3
_STATUS_BYTES = 32
# With other values of these, an interpreter starts as another one.
_OF_INTERPRETER = ("PYTHON", "LC_", "LANG", "LD_")


class LoadedHood(subprocess.Popen[bytes]):
    """A command under way, like any other process that `Popen` starts; its server sends how it ended."""

    program = "hood"

    def __init__(
        self,
        arguments: Iterable[str | Path],
        *,
        owns_terminal: bool = False,
        start_new_session: bool = False,
        kind: Kind | None = None,
        **options: Any,
    ) -> None:
        words = [*map(str, arguments)]
        self._kind: Kind = kind or ("mcp" if words[:1] == ["mcp"] else "hood")
        self._owns = {"owns_terminal": owns_terminal, "owns_session": start_new_session}
        super().__init__(words, **options)

    def _execute_child(self, *values: Any) -> None:
        given = inspect.signature(super()._execute_child).bind(*values).arguments
        pipes = [given[name] for name in ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")]
        streams = [own if pipe == -1 else pipe for own, pipe in enumerate((pipes[0], pipes[3], pipes[5]))]
        request = {
            "program": self.program,
            "arguments": given["args"],
            "environment": dict(os.environ if given["env"] is None else given["env"]),
            "folder": os.fspath(given["cwd"] or os.getcwd()),
            "ignored": [number for number in signal.valid_signals() if signal.getsignal(number) is signal.SIG_IGN],
            **self._owns,
        }
        self._status, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with (
            theirs,
            open(os.memfd_create("request"), "w+b") as file,
            socket.socket(socket.AF_UNIX) as loaded,
        ):
            file.write(json.dumps(request).encode())
            file.flush()
            loaded.connect(address(self._kind))
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


class LoadedPython(LoadedHood):
    """`python -c TEXT` or `python PROGRAM`, with their arguments, and with `-W` before them."""

    program = "python"


def start_hood(*words: str | Path, **options: Any) -> subprocess.Popen[Any]:
    """Where variables want an interpreter of its own, in one."""
    if can_start(options.get("env")):
        return LoadedHood(words, **options)
    return subprocess.Popen([sys.executable, "-m", "fumehood", *words], **options)


def start_python(*words: str | Path, kind: Kind = "hood", **options: Any) -> subprocess.Popen[Any]:
    """Likewise."""
    if can_start(options.get("env")):
        return LoadedPython(words, kind=kind, **options)
    return start_interpreter(*words, **options)


def start_interpreter(*words: str | Path, **options: Any) -> subprocess.Popen[Any]:
    """From nothing."""
    return subprocess.Popen([sys.executable, *words], **options)


def run_hood(*words: str | Path, given: str = "", **options: Any) -> subprocess.CompletedProcess[str]:
    """A command to its end, with all that it prints."""
    return _run(start_hood, *words, given=given, **options)


def run_python(*words: str | Path, given: str = "", **options: Any) -> subprocess.CompletedProcess[str]:
    """A program to its end, with all that it prints."""
    return _run(start_python, *words, given=given, **options)


def _run(
    start: Callable[..., subprocess.Popen[Any]], *words: str | Path, given: str, timeout: float = 110, **options: Any
) -> subprocess.CompletedProcess[str]:
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with start(*words, text=True, **streams, **options) as process:
        try:
            out, err = process.communicate(given, timeout=timeout)
        finally:
            process.kill()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


@cache
def address(kind: Kind) -> str:
    """Where the process listens, which is started unless it is there; in a folder that nobody else may enter."""
    if PLACE not in os.environ:
        begin()
    path = os.path.join(os.environ[PLACE], kind)
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(path):
            subprocess.run([sys.executable, __file__, path, kind, os.environ[OWNER]], check=True)
    finally:
        os.close(lock)
    return path


def begin() -> None:
    """Makes this process the one that loaded processes end with."""
    os.environ[PLACE] = tempfile.mkdtemp(prefix="hood-loaded-")
    os.environ[OWNER] = str(os.getpid())
    atexit.register(shutil.rmtree, os.environ[PLACE])


def handover(kind: Kind = "hood", program: str = "hood") -> list[str]:
    """The command that hands over to a loaded process; what the program is to be given comes behind it."""
    return [sys.executable, "-I", "-S", str(Path(__file__).with_name("handover.py")), address(kind), program]


def serve(listener: socket.socket, owner: int) -> None:
    """Until the owner has ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps those that wait for a command
    while owner not in (ready := select.select([owner, listener], [], [])[0]):
        if listener in ready:
            connection, _ = listener.accept()
            with connection:
                _serve_one(connection)


def _serve_one(connection: socket.socket) -> None:
    message, descriptors, _, _ = socket.recv_fds(connection, len(START), 2 + _STREAMS)
    if message and os.fork() == 0:
        connection.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _start_and_wait(*descriptors)
    for descriptor in descriptors:
        os.close(descriptor)


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
    if request["owns_terminal"] or request["owns_session"]:
        os.setsid()
    if request["owns_terminal"]:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    for number in request["ignored"]:
        signal.signal(number, signal.SIG_IGN)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv, sys.path[0] = ["hood", *request["arguments"]], request["folder"]
    _open_streams()
    if request["program"] == "python":
        _run_python(request["arguments"])
    import fumehood_client

    fumehood_client.main()


def _run_python(arguments: list[str]) -> NoReturn:
    """What the interpreter does with its arguments; how it ends is left to it."""
    while arguments[0] == "-W":
        warnings._processoptions([arguments[1]])  # type: ignore[attr-defined]
        arguments = arguments[2:]
    if arguments[0] == "-c":
        name, text, sys.argv = "<string>", arguments[1], ["-c", *arguments[2:]]
    else:
        name, text, sys.argv = arguments[0], Path(arguments[0]).read_text(), arguments
        sys.path[0] = str(Path(name).resolve().parent)
    main = sys.modules["__main__"] = ModuleType("__main__")
    main.__dict__.update({} if name == "<string>" else {"__file__": name})
    try:
        exec(compile(text, name, "exec"), main.__dict__)
    except Exception as error:
        traceback.print_exception(error.with_traceback(error.__traceback__ and error.__traceback__.tb_next))
        sys.exit(1)
    sys.exit()


def _open_streams() -> None:
    """As an interpreter does at its start."""
    sys.stdin = sys.__stdin__ = os.fdopen(0, closefd=False)
    sys.stdout = sys.__stdout__ = os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.__stderr__ = os.fdopen(2, "w", errors="backslashreplace", closefd=False)
    sys.stderr.reconfigure(line_buffering=True)


def load(kind: Kind) -> None:
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
    # Of an extra each.
    for name in ("fumehood.server.listener", "fumehood.cluster.worker", "fumehood.remote.server", "nats.aio.client"):
        _import_if_there(name)
    if kind == "mcp":
        _import_if_there("fumehood.integrations.mcp.http")
        _import_if_there("fumehood.integrations.mcp.stdio")
    if kind == "frameworks":
        for folder in (Path(fumehood.__file__).parent / "integrations").glob("*/__init__.py"):
            _import_if_there(f"fumehood.integrations.{folder.parent.name}")
        # What these import when they are used.
        for name in ("anthropic", "acp", "jsonschema", "numpy", "IPython", "autogen_agentchat.agents"):
            _import_if_there(name)


def _import_if_there(name: str) -> None:
    with suppress(ImportError):
        import_module(name)


def listen(path: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(socket.SOMAXCONN)
    return listener


def main(path: str, kind: Kind, owner: str) -> None:
    """It is no descendant of whoever starts it: tests count those."""
    end = os.pidfd_open(int(owner))
    listener = listen(path)
    if os.fork() == 0:
        load(kind)
        gc.collect()
        gc.freeze()
        serve(listener, end)
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
