"""How a Python program ends: what the interpreter itself would do, for the user's part of it alone.

The interpreter's own end would take every preloaded module apart, which costs more than most programs. What a program
can notice is done here in the same order: the exception is shown, threads are joined, exit functions called, its
modules dropped, what is left collected, streams flushed.
"""

from __future__ import annotations

import atexit
import builtins
import errno
import os
import signal
import sys
import weakref
from gc import collect
from os import symlink, write
from traceback import format_exception
from types import ModuleType
from typing import Any, TextIO

# Bound before there is a program, which may put anything in the place of a builtin or of a function of these modules.
__builtins__ = dict(vars(builtins))
_run_exit_functions = atexit._run_exitfuncs  # pyright: ignore[reportPrivateUsage] - what the interpreter itself calls

INTERRUPTED = -signal.SIGINT
_FAILED = 1
_FLUSH_FAILED = 120
_LARGEST_EXIT_CODE = 2**63
_EXHAUSTED = ".exhausted"


def after_exception(error: BaseException, run_folder: str) -> int:
    """Show it, as the program wants it shown; returns the exit code."""
    if isinstance(error, SystemExit):
        return exit_code(error)
    # The first frame is ours; what follows is the user's.
    frames = error.__traceback__.tb_next if error.__traceback__ else None
    error.__traceback__ = frames
    code = call_excepthook(error)
    _note_exhaustion(error, run_folder)
    return code


def call_excepthook(error: BaseException) -> int:
    failed = INTERRUPTED if isinstance(error, KeyboardInterrupt) else _FAILED
    hook = getattr(sys, "excepthook", None)
    if hook is None:
        write_error("sys.excepthook is missing\n")
        _show(error)
        return failed
    try:
        hook(type(error), error, error.__traceback__)
    except SystemExit as leaving:
        return exit_code(leaving)
    except BaseException as broken:
        broken.__traceback__ = broken.__traceback__.tb_next if broken.__traceback__ else None
        broken.__context__ = None
        write_error("Error in sys.excepthook:\n")
        _show(broken)
        write_error("\nOriginal exception was:\n")
        _show(error)
    return failed


def _show(error: BaseException) -> None:
    write_error("".join(format_exception(error)))


def exit_code(leaving: SystemExit) -> int:
    code = leaving.code
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF if -_LARGEST_EXIT_CODE <= code < _LARGEST_EXIT_CODE else 0xFF
    try:
        write_error(f"{code}\n")
    except BaseException:
        write_error("\n")  # what it says of itself cannot be shown
    return _FAILED


def write_error(text: str) -> None:
    """Writes to the program's sys.stderr, or to descriptor 2 where there is none."""
    stream: TextIO | None = getattr(sys, "stderr", None)
    try:
        if stream is None:
            write(2, text.encode("utf-8", "backslashreplace"))
        else:
            stream.write(text)
    except BaseException:
        return  # the stream cannot be written to


def finish(last_preloaded: str, code: int) -> int:
    _wait_for_threads()
    if sys.unraisablehook is sys.__unraisablehook__:
        sys.unraisablehook = _show_ignored
    _run_exit_functions()
    sys.unraisablehook = sys.__unraisablehook__
    flushed = flush()
    drop_modules(last_preloaded)
    return code if flushed and flush() else code or _FLUSH_FAILED


def _wait_for_threads() -> None:
    """Waits for threads that are not daemons."""
    threading: Any = sys.modules.get("threading")
    if threading is None:
        return
    try:
        threading._shutdown()
    except BaseException as error:  # the program has put something else there
        frames = error.__traceback__.tb_next if error.__traceback__ else None
        shown = "".join(format_exception(type(error), error, frames))
        write_error(f"Exception ignored in: {threading!r}\n{shown}")


def _show_ignored(ignored: sys.UnraisableHookArgs) -> None:
    """An error in an exit function, as the interpreter shows it, without the frame of ours that called it."""
    frames = ignored.exc_traceback
    if frames and frames.tb_frame.f_code is finish.__code__:
        frames = None
    shown = format_exception(ignored.exc_type, ignored.exc_value, frames)
    write_error(f"{ignored.err_msg or 'Exception ignored in'}: {ignored.object!r}\n{''.join(shown)}")


def drop_modules(last_preloaded: str) -> None:
    """First releases them all, so that finalizers still find what they use; then clears those still referenced."""
    names = ["__main__", *_imported_after(last_preloaded)]
    held = [weakref.ref(sys.modules.pop(name)) for name in names if isinstance(sys.modules.get(name), ModuleType)]
    found = collect()
    for reference in held:
        module = reference()
        if module is not None:
            _empty(vars(module))
            found += 1
    if found:
        collect()


def _imported_after(last_preloaded: str) -> list[str]:
    """From the newest on: the table is in order of import, and its older part need not be touched."""
    names: list[str] = []
    for name in reversed(sys.modules):
        if name == last_preloaded:
            break
        names.append(name)
    return names


def _empty(namespace: dict[str, Any]) -> None:
    """Clears a module's namespace as the interpreter does: private names first, builtins never."""
    for private in (True, False):
        for name in list(namespace):
            if name != "__builtins__" and name.startswith("_") is private:
                namespace[name] = None


def flush() -> bool:
    flushed = [_flush_stream(getattr(sys, name, None)) for name in ("stdout", "stderr")]
    return all(flushed)


def _flush_stream(stream: TextIO | None) -> bool:
    try:
        if stream is not None and not stream.closed:
            stream.flush()
    except Exception as error:
        write_error(f"Exception ignored in: {stream!r}\n{type(error).__name__}: {error}\n")
        return False
    return True


def kind_of_exhaustion(error: BaseException) -> str:
    """Which limit the program ran into, if any: some mechanisms count no failures that we could read."""
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return "memory"
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return "disk"
    if isinstance(error, BlockingIOError) or (isinstance(error, RuntimeError) and "start new thread" in str(error)):
        return "processes"
    return ""


def _note_exhaustion(error: BaseException, run_folder: str) -> None:
    """Leave a word on it where the cell will look."""
    kind = kind_of_exhaustion(error)
    if not kind:
        return
    try:
        # A link needs no space, which may be what has run out.
        symlink(kind, f"{run_folder}/{_EXHAUSTED}")
    except OSError:
        return  # no inode left either: the file system's own count tells


def read_exhausted(run_folder: int) -> str:
    """What the program said of itself; it may say what it likes, for it only labels its own failure."""
    try:
        kind = os.readlink(_EXHAUSTED, dir_fd=run_folder)
    except OSError:
        return ""
    return kind if kind in ("memory", "disk", "processes") else ""
