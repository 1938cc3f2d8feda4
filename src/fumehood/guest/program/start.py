"""The last step: this process becomes the user's program.

Python code runs in the interpreter that is already here, with everything that a plain `python3 file.py` would show it;
everything else is executed. Must leave nothing of ours in sight: no frame in a traceback, no module, no descriptor.
"""

from __future__ import annotations

import builtins
import gc
import os
import signal
import site
import socket
import sys
import threading
import time
import types
from importlib.machinery import SourceFileLoader
from os import _exit as leave
from os import getpid, kill
from signal import SIG_DFL, SIGINT
from signal import signal as set_handler
from threading import get_native_id
from typing import Any, NoReturn

from ..contract import frames
from ..contract.paths import RUN_FOLDER, TRUST_FILE, WORKSPACE
from ..isolation.descriptors import keep_only
from . import randomness, session, shutdown, terminal, toolchain, user_site
from .fork_hooks import ForkHooks
from .source import text_of
from .streams import Streams, open_streams, usual_streams

# What ends a program was bound above, before there is one: it may put anything in the place of a builtin or `os._exit`.
__builtins__ = dict(vars(builtins))

_NOT_FOUND, _NOT_EXECUTABLE = 127, 126
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
_CONVERSATION = 3
_SCRATCH = "/tmp"
_former_streams: list[tuple[object, ...]] = []
"""Those of the cell and of the rehearsal: held on to, because freeing them would cost."""
REHEARSAL = (
    b'{"kind": "program", "language": "python", "interpreter": null, "commands": null, "script": "main.py", '
    b'"arguments": [], "source_bytes": 13, "environment": {}, "cwd": "", "has_input": false, "terminal": null, '
    b'"leaves": null, "takes": null}\nprint(end="")'
)


class RequestRefusedError(Exception):
    """The request cannot be carried out in this sandbox; the caller receives the reason, and nothing has run."""


class PreloadError(Exception):
    """A module of the policy's cannot be imported; says which, and why."""


class GuestInterpreter:
    """What the cell knows of its interpreter and every run needs to know."""

    def __init__(self, environment: dict[str, str], module_path: list[str], hooks: ForkHooks) -> None:
        """Make this interpreter look like a new one, as far as that is the same for every run."""
        os.umask(0o022)
        os.environ.clear()
        os.environ.update(environment)
        # Packages come last, as they do elsewhere: none can take the place of a module that the cell itself imports.
        # The program's own folders join with its first line (`_own_folders`): nothing of ours ever looks there.
        sys.path += module_path
        # It was started without `site`, to keep the host's packages out; scripts still expect its builtins.
        site.setquit()
        site.setcopyright()
        site.sethelper()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._fork_hooks = hooks
        self._usual_streams: Streams | None = None
        self._main_thread: Any = threading.main_thread()
        self.run_folder = RUN_FOLDER

    def preload(self, modules: list[str]) -> None:
        """Imports ahead of time. Nothing is imported after that but by the program."""
        for name in modules:
            import_module(name)
        self._fork_hooks.release()
        self._last_module = next(reversed(sys.modules))
        randomness.find_sources()

    def prepare(self) -> None:
        """Before the first run, what is the same in all of them; where forks of ours call no hooks of Python's, and the
        output of programs goes into pipes.
        """
        self.register_hooks()
        self._usual_streams = usual_streams()

    def register_hooks(self) -> None:
        """What modules want done at the program's own forks."""
        self._fork_hooks.register()

    def wake(self) -> None:
        """In a run: what has to be different in every one."""
        self._main_thread._native_id = get_native_id()
        randomness.renew()

    def rehearse(self, request: dict[str, Any], body: bytes) -> None:
        """In a run on standby: once through what every run does, from its request to its end, with nothing left of it.

        The pages of memory that this touches are copied now, and not while a caller waits.
        """
        source = _keep_trust(request, body)
        toolchain.find_commands(request)
        toolchain.hand_over(request, self.run_folder)
        _set_environment(request["environment"])
        script = _write_script(self.run_folder, request["script"], source)
        os.unlink(script)
        self._set_up_python(script, request)
        _run(script, source, self.run_folder)
        shutdown.flush()
        shutdown.drop_modules(self._last_module)
        gc.disable()
        user_site.leave_path()
        del sys.path[0]

    def become(self, request: dict[str, Any], source: bytes, descriptors: list[int]) -> NoReturn:
        """What `request` asks for. The descriptors are its standard streams, or what takes their place."""
        source = _keep_trust(request, source)
        _check(request, self.run_folder)
        _set_environment(request["environment"])
        stdio = terminal.open_streams(descriptors[0], request["terminal"]) if request["terminal"] else descriptors
        script = _write_script(self.run_folder, request["script"], source) if request["script"] else None
        keep_only(stdio)
        if request["interpreter"] is None and script is not None:
            self._become_python(script, source, request)
        _execute([*(request["interpreter"] or []), *([script] if script else []), *request["arguments"]])

    def become_session(self, request: dict[str, Any], body: bytes, descriptors: list[int]) -> NoReturn:
        """Turns this process into a session. The descriptors are its standard streams, and the socket for sources."""
        _keep_trust(request, body)
        _set_environment(request["environment"])
        os.chdir(WORKSPACE)
        keep_only(descriptors)
        os.set_inheritable(_CONVERSATION, False)
        sys.argv = [""]
        sys.orig_argv = [sys.executable]
        self._set_streams(is_usual=True)
        _make_main_module("")
        gc.enable()
        stream = socket.socket(fileno=_CONVERSATION)
        folders = _own_folders(WORKSPACE, request["environment"])
        session.serve(frames.FrameSocket(stream), self._last_module, _SCRATCH, folders)

    def _become_python(self, path: str, source: bytes, request: dict[str, Any]) -> NoReturn:
        self._set_up_python(path, request)
        code = shutdown.finish(self._last_module, _run(path, source, self.run_folder))
        if code == shutdown.INTERRUPTED:
            set_handler(SIGINT, SIG_DFL)
            kill(getpid(), SIGINT)
        leave(code & 0xFF)

    def _set_up_python(self, path: str, request: dict[str, Any]) -> None:
        """Makes the interpreter look like one that was started with this script."""
        sys.argv = [path, *request["arguments"]]
        sys.orig_argv = [sys.executable, *sys.argv]
        folder = os.path.dirname(path)
        first = WORKSPACE if folder == self.run_folder else folder
        self._set_streams(is_usual=not request["has_input"] and not request["terminal"])
        _make_main_module(path)
        gc.enable()
        sys.path[:0] = _own_folders(first, request["environment"])
        user_site.join_path()

    def _set_streams(self, *, is_usual: bool) -> None:
        _former_streams.append((sys.stdin, sys.stdout, sys.stderr))
        streams = self._usual_streams if is_usual and self._usual_streams else open_streams()
        sys.stdin, sys.stdout, sys.stderr = sys.__stdin__, sys.__stdout__, sys.__stderr__ = streams


def _own_folders(first: str, environment: dict[str, str]) -> list[str]:
    """Where a program's own modules are, as in an interpreter that was started with this environment."""
    others = environment.get("PYTHONPATH")
    return [first, *(others.split(":") if others else ())]


def import_module(name: str) -> None:
    try:
        __import__(name)
    except (Exception, SystemExit) as error:
        raise PreloadError(f"{name} cannot be imported: {type(error).__name__}: {error}") from error


def _check(request: dict[str, Any], run_folder: str) -> None:
    """Raises for a request that cannot be carried out, while the refusal can still be sent to the caller."""
    missing = toolchain.find_commands(request)
    if missing:
        raise RequestRefusedError(missing)
    try:
        os.chdir(os.path.join(WORKSPACE, request["cwd"]))
    except OSError as error:
        raise RequestRefusedError(
            f"cwd {request['cwd']!r} cannot be entered in the sandbox: {error.strerror}"
        ) from error
    try:
        toolchain.hand_over(request, run_folder)
    except OSError as error:
        raise RequestRefusedError(f"there is no way from the compiler to the program: {error}") from error


def _keep_trust(request: dict[str, Any], body: bytes) -> bytes:
    """Writes the CA certificates for outbound TLS, which follow the source, to a file; returns the source."""
    source, trust = body[: request["source_bytes"]], body[request["source_bytes"] :]
    if trust:
        # Under another name first: another run of the sandbox may be reading it.
        draft = f"{TRUST_FILE}.{os.getpid()}"
        try:
            with open(draft, "wb") as stream:
                stream.write(trust)
            os.rename(draft, TRUST_FILE)
        except OSError as error:
            raise RequestRefusedError(f"there is no place for the certificates to trust: {error.strerror}") from error
    return source


def _write_script(run_folder: str, name: str, source: bytes) -> str:
    if name.startswith("/"):
        return name  # it lies there already
    path = f"{run_folder}/{name}"
    descriptor = os.open(path, _NEW_FILE, 0o666)
    try:
        pending = memoryview(source)
        while pending:
            pending = pending[os.write(descriptor, pending) :]
    finally:
        os.close(descriptor)
    return path


def _execute(command: list[str]) -> NoReturn:
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)
    except FileNotFoundError:
        _fail(f"{command[0]}: command not found in the sandbox", _NOT_FOUND)
    except OSError as error:
        _fail(f"{command[0]}: {error.strerror}", _NOT_EXECUTABLE)


def _fail(text: str, code: int) -> NoReturn:
    os.write(2, f"{text}\n".encode("utf-8", "replace"))
    leave(code)


def _set_environment(environment: dict[str, str]) -> None:
    """Sets the environment as if the interpreter had been started with it."""
    if not environment:
        return
    os.environ.update(environment)
    if "TZ" in environment:
        time.tzset()


def _make_main_module(path: str) -> None:
    """Replaces the cell's main module. There is no other reference to it, so it is freed when the program ends."""
    main = types.ModuleType("__main__")
    main.__dict__.update(
        __file__=path,
        __cached__=None,
        __annotations__={},
        __builtins__=sys.modules["builtins"],
        __loader__=SourceFileLoader("__main__", path),
    )
    sys.modules["__main__"] = main


def _run(path: str, source: bytes, run_folder: str) -> int:
    try:
        text = text_of(source, path)
    except SyntaxError as error:
        return shutdown.after_exception(error.with_traceback(None), run_folder)
    try:
        exec(compile(text, path, "exec", dont_inherit=True), vars(sys.modules["__main__"]))
    except BaseException as error:
        return shutdown.after_exception(error, run_folder)
    return 0
