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
import sys
import types
from importlib.machinery import SourceFileLoader
from typing import Any, NoReturn

from . import randomness
from .rootfs import RUN_FOLDER, WORKSPACE

_NOT_FOUND, _NOT_EXECUTABLE = 127, 126
_FLUSH_FAILED = 120
_EXHAUSTED = f"{RUN_FOLDER}/.exhausted"


class RequestRefusedError(Exception):
    """The request cannot be carried out in this sandbox; the caller is told, and nothing has run."""


def become(request: dict[str, Any], source: bytes, stdio: tuple[int, int, int], module_path: list[str]) -> NoReturn:
    environment: dict[str, str] = request["environment"]
    _enter_folder(request["cwd"])
    script = _write_script(request["script"], source) if request["script"] else None
    for number, descriptor in enumerate(stdio):
        os.dup2(descriptor, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    if request["interpreter"] is None and script is not None:
        _become_python(script, source, request["arguments"], environment, module_path)
    _execute([*(request["interpreter"] or []), *([script] if script else []), *request["arguments"]], environment)


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


def _enter_folder(cwd: str) -> None:
    os.umask(0o022)
    os.chdir(os.path.join(WORKSPACE, cwd))


def _write_script(name: str, source: bytes) -> str:
    path = f"{RUN_FOLDER}/{name}"
    with open(path, "wb") as stream:
        stream.write(source)
    return path


def _execute(command: list[str], environment: dict[str, str]) -> NoReturn:
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(command[0], command, environment)
    except FileNotFoundError:
        _fail(f"{command[0]}: command not found in the sandbox", _NOT_FOUND)
    except OSError as error:
        _fail(f"{command[0]}: {error.strerror}", _NOT_EXECUTABLE)


def _fail(text: str, code: int) -> NoReturn:
    os.write(2, f"{text}\n".encode("utf-8", "replace"))
    os._exit(code)


def _become_python(
    path: str, source: bytes, arguments: list[str], environment: dict[str, str], module_path: list[str]
) -> NoReturn:
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [path, *arguments]
    sys.path[:] = [WORKSPACE, *module_path, *sys.path]
    _open_streams()
    randomness.renew()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in [name for name in sys.modules if name.split(".")[0] == "guest"]:
        del sys.modules[name]
    preloaded = set(sys.modules)
    main = _main_module(path)
    gc.enable()
    code = _run(path, source, main)
    code = _finish(main, preloaded, code)
    if code == -signal.SIGINT:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(code & 0xFF)


def _main_module(path: str) -> types.ModuleType:
    main = types.ModuleType("__main__")
    main.__dict__.update(
        __file__=path,
        __cached__=None,
        __annotations__={},
        __builtins__=sys.modules["builtins"],
        __loader__=SourceFileLoader("__main__", path),
    )
    sys.modules["__main__"] = main
    return main


def _open_streams() -> None:
    """Standard streams as a terminal would have them: a line is sent when it is complete."""
    encoding = {"encoding": "utf-8", "errors": "surrogateescape"}
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(open(0, "rb", closefd=False), **encoding)
    sys.stdout = sys.__stdout__ = io.TextIOWrapper(open(1, "wb", closefd=False), line_buffering=True, **encoding)
    sys.stderr = sys.__stderr__ = io.TextIOWrapper(
        open(2, "wb", closefd=False), line_buffering=True, encoding="utf-8", errors="backslashreplace"
    )
    for stream, name in ((sys.stdin, "<stdin>"), (sys.stdout, "<stdout>"), (sys.stderr, "<stderr>")):
        stream.buffer.raw.name = name  # type: ignore[attr-defined]


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
        os.symlink(kind, _EXHAUSTED)
    except OSError:
        return  # no inode left either: the file system's own count tells


def read_exhausted() -> str:
    """What the program said of itself; it may say what it likes, for it only labels its own failure."""
    try:
        kind = os.readlink(_EXHAUSTED)
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


def _finish(main: types.ModuleType, preloaded: set[str], code: int) -> int:
    """What an interpreter does at its end, for the user's modules alone: the preloaded ones have nothing to say."""
    threading = sys.modules.get("threading")
    if threading:
        threading._shutdown()
    atexit._run_exitfuncs()
    for name in [name for name in sys.modules if name not in preloaded]:
        _clear(sys.modules.pop(name).__dict__)
    _clear(main.__dict__)
    gc.collect()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        return code or _FLUSH_FAILED
    return code


def _clear(namespace: dict[str, Any]) -> None:
    """As the interpreter does it: private names first, builtins never, so that finalizers still find what they use."""
    for private in (True, False):
        for name in list(namespace):
            if name != "__builtins__" and name.startswith("_") is private:
                namespace[name] = None
