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


def prepare(environment: dict[str, str], module_path: list[str]) -> None:
    """On standby: make this interpreter look like a new one, as far as that needs no knowledge of the code."""
    os.umask(0o022)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = [WORKSPACE, *module_path]
    randomness.renew()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Once through what every run does: the pages that this touches are copied now and not when a caller waits.
    for stream in _open_streams():
        stream.detach()
    exec(compile(b"", "", "exec", dont_inherit=True), vars(_main_module("")))
    gc.enable()


def become(request: dict[str, Any], source: bytes, stdio: tuple[int, int, int]) -> NoReturn:
    os.environ.update(request["environment"])
    os.chdir(os.path.join(WORKSPACE, request["cwd"]))
    script = _write_script(request["script"], source) if request["script"] else None
    for number, descriptor in enumerate(stdio):
        os.dup2(descriptor, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    if request["interpreter"] is None and script is not None:
        _become_python(script, source, request["arguments"])
    _execute([*(request["interpreter"] or []), *([script] if script else []), *request["arguments"]])


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


def _become_python(path: str, source: bytes, arguments: list[str]) -> NoReturn:
    sys.argv = [path, *arguments]
    sys.stdin, sys.stdout, sys.stderr = sys.__stdin__, sys.__stdout__, sys.__stderr__ = _open_streams()
    for name in [name for name in sys.modules if name.partition(".")[0] == "guest"]:
        del sys.modules[name]
    preloaded = set(sys.modules)
    main = _main_module(path)
    code = _finish(main, preloaded, _run(path, source, main))
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


def _open_streams() -> tuple[io.TextIOWrapper, io.TextIOWrapper, io.TextIOWrapper]:
    """Standard streams as a terminal would have them: a line is sent when it is complete."""
    return (
        _text_stream(0, "<stdin>", "surrogateescape"),
        _text_stream(1, "<stdout>", "surrogateescape"),
        _text_stream(2, "<stderr>", "backslashreplace"),
    )


def _text_stream(descriptor: int, name: str, errors: str) -> io.TextIOWrapper:
    buffer = open(descriptor, "wb" if descriptor else "rb", closefd=False)
    buffer.raw.name = name  # type: ignore[attr-defined]
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
