"""The last step: this process becomes the user's program.

Python code runs in the interpreter that is already here, with everything that a plain `python3 file.py` would show it;
everything else is executed. Must leave nothing of ours in sight: no frame in a traceback, no module, no descriptor.
"""

from __future__ import annotations

import atexit
import errno
import gc
import io
import os
import signal
import site
import sys
import types
from importlib.machinery import SourceFileLoader
from typing import Any, NoReturn

from . import randomness
from .rootfs import RUN_FOLDER, WORKSPACE

_NOT_FOUND, _NOT_EXECUTABLE = 127, 126
_FLUSH_FAILED = 120
# All were closed when the process was born; it has opened a handful since.
_MOST_DESCRIPTORS = 256
_EXHAUSTED = ".exhausted"


class RequestRefusedError(Exception):
    """The request cannot be carried out in this sandbox; the caller is told, and nothing has run."""


class PreloadError(Exception):
    """A module of the policy's cannot be imported; says which, and why."""


class Interpreter:
    """What the cell knows of its interpreter and every run needs to know."""

    def __init__(self, environment: dict[str, str], module_path: list[str]) -> None:
        """Make this interpreter look like a new one, as far as that is the same for every run."""
        os.umask(0o022)
        os.environ.clear()
        os.environ.update(environment)
        # Packages come last, as they do elsewhere: none can take the place of a module that the cell itself imports.
        sys.path[:] = [WORKSPACE, *sys.path, *module_path]
        # It was started without `site`, to keep the host's packages out; scripts still expect its builtins.
        site.setquit()
        site.setcopyright()
        site.sethelper()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._fork_hooks: list[dict[str, Any]] = []

    def preload(self, modules: list[str]) -> None:
        """Import ahead of time. What they want done after a fork is put aside: it is for the program's forks."""
        register, os.register_at_fork = os.register_at_fork, self._put_aside
        try:
            for name in modules:
                _import(name)
        finally:
            os.register_at_fork = register
        self.last_module = next(reversed(sys.modules))

    def _put_aside(self, **hooks: Any) -> None:
        self._fork_hooks.append(hooks)

    def wake(self) -> None:
        """In a run, on standby: what has to be different in every run, and once through what every run does.

        The pages of memory that this touches are copied now, and not while a caller waits.
        """
        for hooks in self._fork_hooks:
            os.register_at_fork(**hooks)
        randomness.renew()
        for stream in _open_streams():
            stream.detach()
        exec(compile(b"", "", "exec", dont_inherit=True), vars(_main_module("")))

    def become(self, request: dict[str, Any], source: bytes, stdio: tuple[int, int, int]) -> NoReturn:
        os.environ.update(request["environment"])
        os.chdir(os.path.join(WORKSPACE, request["cwd"]))
        script = _write_script(request["script"], source) if request["script"] else None
        for number, descriptor in enumerate(stdio):
            os.dup2(descriptor, number)
        os.closerange(3, _MOST_DESCRIPTORS)
        if request["interpreter"] is None and script is not None:
            self._become_python(script, source, request["arguments"])
        _execute([*(request["interpreter"] or []), *([script] if script else []), *request["arguments"]])

    def _become_python(self, path: str, source: bytes, arguments: list[str]) -> NoReturn:
        sys.argv = [path, *arguments]
        sys.stdin, sys.stdout, sys.stderr = sys.__stdin__, sys.__stdout__, sys.__stderr__ = _open_streams()
        main = _main_module(path)
        gc.enable()
        code = _finish(main, self.last_module, _run(path, source, main))
        if code == -signal.SIGINT:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        os._exit(code & 0xFF)


def _import(name: str) -> None:
    try:
        __import__(name)
    except (Exception, SystemExit) as error:
        raise PreloadError(f"{name} cannot be imported: {type(error).__name__}: {error}") from error


def check(request: dict[str, Any]) -> None:
    """Whatever can be refused is refused while there is still somebody to tell."""
    interpreter: list[str] | None = request["interpreter"]
    if interpreter and not os.access(interpreter[0], os.X_OK):
        raise RequestRefusedError(
            f"language {request['language']!r} is not available in this sandbox: it has no {interpreter[0]}"
        )
    folder = os.path.join(WORKSPACE, request["cwd"])
    if not os.path.isdir(folder):
        raise RequestRefusedError(f"cwd {request['cwd']!r} is not a folder in the sandbox")


def _write_script(name: str, source: bytes) -> str:
    path = f"{RUN_FOLDER}/{name}"
    with open(path, "wb") as stream:
        stream.write(source)
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
    os._exit(code)


def _main_module(path: str) -> types.ModuleType:
    main = types.ModuleType("__main__")
    main.__dict__.update(
        __file__=path,
        __cached__=None,
        __annotations__={},
        __builtins__=sys.modules["builtins"],
        __loader__=SourceFileLoader("__main__", path),
    )
    sys.modules["__main__"] = main  # in place of the cell's own, so that it stays in front of the preloaded ones
    return main


def _open_streams() -> tuple[io.TextIOWrapper, io.TextIOWrapper, io.TextIOWrapper]:
    """Standard streams as a terminal would have them: a line is sent when it is complete."""
    return (
        _text_stream(0, "<stdin>", "surrogateescape"),
        _text_stream(1, "<stdout>", "surrogateescape"),
        _text_stream(2, "<stderr>", "backslashreplace"),
    )


def _text_stream(descriptor: int, name: str, errors: str) -> io.TextIOWrapper:
    raw = io.FileIO(descriptor, "w" if descriptor else "r", closefd=False)
    raw.name = name
    buffer = io.BufferedWriter(raw) if descriptor else io.BufferedReader(raw)
    return io.TextIOWrapper(buffer, "utf-8", errors, line_buffering=descriptor > 0)


def _run(path: str, source: bytes, main: types.ModuleType) -> int:
    try:
        exec(compile(source, path, "exec", dont_inherit=True), main.__dict__)
    except SystemExit as error:
        return _exit_code(error)
    except BaseException as error:
        # The first frame is this one; what follows is the user's.
        user_frames = error.__traceback__.tb_next if error.__traceback__ else None
        sys.excepthook(type(error), error.with_traceback(user_frames), user_frames)
        _note_exhaustion(error)
        return -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _note_exhaustion(error: BaseException) -> None:
    """Leave a word on which limit the program ran into: some mechanisms count no failures that we could read."""
    if isinstance(error, MemoryError):
        kind = "memory"
    elif isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        kind = "disk"
    elif isinstance(error, BlockingIOError) or (isinstance(error, RuntimeError) and "start new thread" in str(error)):
        kind = "processes"
    else:
        return
    try:
        # A link needs no space, which may be what has run out.
        os.symlink(kind, f"{RUN_FOLDER}/{_EXHAUSTED}")
    except OSError:
        return  # no inode left either: the file system's own count tells


def read_exhausted(run_folder: int) -> str:
    """What the program said of itself; it may say what it likes, for it only labels its own failure."""
    try:
        kind = os.readlink(_EXHAUSTED, dir_fd=run_folder)
    except OSError:
        return ""
    return kind if kind in ("memory", "disk", "processes") else ""


def _exit_code(error: SystemExit) -> int:
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF
    print(error.code, file=sys.stderr)
    return 1


def _finish(main: types.ModuleType, last_preloaded: str, code: int) -> int:
    """What an interpreter does at its end, for the user's modules alone: the preloaded ones have nothing to say."""
    threading = sys.modules.get("threading")
    if threading:
        threading._shutdown()  # waits for the threads that are not daemons
    atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage] - what the interpreter itself calls
    for name in _imported_after(last_preloaded):
        _clear(vars(sys.modules.pop(name)))
    _clear(vars(main))
    gc.collect()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        return code or _FLUSH_FAILED
    return code


def _imported_after(last_preloaded: str) -> list[str]:
    """From the newest on: the table is in order of import, and its older part need not be touched."""
    names: list[str] = []
    for name in reversed(sys.modules):
        if name == last_preloaded:
            break
        names.append(name)
    return names


def _clear(namespace: dict[str, Any]) -> None:
    """As the interpreter does it: private names first, builtins never, so that finalizers still find what they use."""
    for private in (True, False):
        for name in list(namespace):
            if name != "__builtins__" and name.startswith("_") is private:
                namespace[name] = None
