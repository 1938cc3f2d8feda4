"""The entry point of `hood`: dispatches to a command, and turns what it raises into one line and an exit code."""

from __future__ import annotations

import atexit
import os
import sys
import warnings

from fumehood import __version__
from fumehood.cli import exitcodes
from fumehood.cli.commands import BY_NAME, COMMANDS
from fumehood.cli.output import say
from fumehood.errors import DangerousPolicyWarning, FumehoodError

TYPE_CHECKING = False  # as type checkers read it; `hood --help` needs no typing, which takes longer to import
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

_EXAMPLES = """\
examples:
  hood run script.py a.csv --fast         a file, with arguments of its own
  hood run -c 'print(6 * 7)'              a line of code
  hood run --language sh - < build.sh     code from standard input
"""


def run_process() -> NoReturn:
    """The whole life of the process; skips the interpreter's slow end once everything of ours is closed."""
    show_dangers()
    code = flush(run_command(sys.argv[1:]))
    atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]  # os._exit would skip them
    os._exit(code)


def run_command(arguments: list[str]) -> int:
    return explained(lambda: _dispatch(arguments))


def explained(action: Callable[[], int]) -> int:
    """The exit code of an action. An exception becomes a line and an exit code."""
    try:
        return action()
    except SystemExit as error:  # argparse has said what there was to say
        return error.code if isinstance(error.code, int) else 0
    except KeyboardInterrupt:
        return exitcodes.INTERRUPTED
    except BrokenPipeError:
        return exitcodes.BROKEN_PIPE
    except FumehoodError as error:
        if _is_debugging():
            raise
        say(str(error))
        return exitcodes.for_error(error)
    except Exception as error:
        if _is_debugging():
            raise
        what = "system error" if isinstance(error, OSError) else f"internal error: {type(error).__name__}"
        say(f"{what}: {error}. Set HOOD_DEBUG=1 to see the traceback.")
        return exitcodes.OWN_FAILURE


def show_dangers() -> None:
    """Every danger once from now on, also one that was shown before."""
    warnings.showwarning = _show_warning
    warnings.simplefilter("default", DangerousPolicyWarning)


def _show_warning(message: Warning | str, category: type[Warning], *place: object) -> None:
    """Prints warnings of dangerous policies in the format of `hood`, and drops those of libraries."""
    if issubclass(category, DangerousPolicyWarning):
        say(f"danger: {message}")


def _dispatch(arguments: list[str]) -> int:
    match arguments:
        case ["help" | "-h" | "--help", name, *_] if name in BY_NAME:
            BY_NAME[name].load().build_parser().print_help()
            return 0
        case [] | ["-h" | "--help" | "help"]:
            print(_help(), end="")
            return 0
        case ["--version" | "-V", *_]:
            print(f"hood {__version__}")
            return 0
        case [name, *rest] if name in BY_NAME:
            return BY_NAME[name].load().execute(rest)
        case _:
            from fumehood.cli.arguments import nearest

            name = arguments[1] if arguments[0] in ("help", "-h", "--help") else arguments[0]
            kind = "option" if name.startswith("-") else "command"
            same = f" (here it is `hood {_ELSEWHERE[name]}`)" if name in _ELSEWHERE else ""
            advice = same or nearest(name, [*BY_NAME, "--help", "--version"])
            if not advice and os.path.isfile(name):
                advice = f" (did you mean `hood run {name}`?)"
            say(f"unknown {kind} {name!r}{advice}; see `hood --help`")
            return exitcodes.USAGE


# Commands of `docker`, and what does that here.
_ELSEWHERE = {
    "ps": "sandbox list",
    "ls": "sandbox list",
    "exec": "sandbox exec",
    "create": "sandbox create",
    "rm": "sandbox rm",
    "images": "image list",
    "build": "image build",
    "logs": "audit tail",
}


def _help() -> str:
    width = max(len(command.name) for command in COMMANDS)
    commands = "".join(f"  {command.name:{width}}  {command.summary}\n" for command in COMMANDS if command.is_listed)
    return (
        "usage: hood COMMAND ...\n\nRuns unreviewed code in a sealed sandbox.\n\n"
        f"commands:\n{commands}\n{_EXAMPLES}\n`hood COMMAND --help` says more; `hood --version` prints the version.\n"
    )


def _is_debugging() -> bool:
    return os.environ.get("HOOD_DEBUG", "") not in ("", "0")


def flush(code: int) -> int:
    """Print's buffer is ours to empty; a reader that has gone away is not an error worth words."""
    try:
        if sys.stdout:
            sys.stdout.flush()
    except BrokenPipeError:
        return exitcodes.BROKEN_PIPE
    except OSError as error:
        say(f"cannot write the output: {error.strerror}")
        return exitcodes.OWN_FAILURE
    return code
