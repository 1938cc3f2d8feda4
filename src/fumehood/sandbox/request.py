"""Turns what a caller asks into a checked request, or one clear error. Nothing has started by then."""

from __future__ import annotations

import fcntl
import os
import posixpath
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import ParamSpec, TypedDict, TypeVar, cast

from fumehood.backends.interface import Input, RunRequest, TerminalSize
from fumehood.backends.languages import Language, find_language
from fumehood.errors import DeniedError, UsageError
from fumehood.keywords import known_keywords
from fumehood.policy import Policy, Resources, Seconds, format_duration, format_size, read_seconds
from fumehood.policy.secret import MissingValueError, SecretSource

P = ParamSpec("P")
T = TypeVar("T")

_MAX_SOURCE_BYTES = 32 * 1024 * 1024
# The kernel's own limit for one argument; a program could not be started with a longer one.
_MAX_ARGUMENT_BYTES = 128 * 1024
_MOST_COLUMNS = 65_535
_TERMINAL_KIND = "xterm-256color"


class RunOptions(TypedDict, total=False):
    """What can be said of a run besides its code."""

    argv: Sequence[str | os.PathLike[str]] | None
    """A command instead of code."""
    language: str
    """One of `backends.languages`; python by default."""
    args: Sequence[str]
    """What the script finds in sys.argv or $1, $2 and so on."""
    name: str | None
    """The script's file name, as tracebacks and compilers show it.

    An absolute path tells where in the sandbox the same source lies already: the script then finds itself there.
    """
    stdin: bytes | str | int | None
    """Data, or a descriptor to read from; nothing by default."""
    env: Mapping[str, str] | None
    cwd: str | os.PathLike[str]
    """Relative to the workspace, or absolute inside the sandbox."""
    timeout: Seconds | None
    """Seconds, or text such as "500ms" or "2m"; can shorten the policy's, not extend it. A compiler and its program
    have it each.
    """


_DEFAULTS = {"language": "python", "args": (), "cwd": ""}


def options_of_runs() -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorates what takes `**options` of a run: others are refused, with the place where they belong."""
    return known_keywords(RunOptions, place_in_policy, _DEFAULTS)


def place_in_policy(name: str) -> str | None:
    if name in Resources.model_fields:
        return f"limits are the policy's, such as Policy(resources={{{name!r}: ...}})"
    if name in Policy.model_fields:
        return f"it belongs to the policy, such as Policy({name}=...)"
    return None


def make_session_request(policy: Policy, code: str | bytes, options: RunOptions) -> RunRequest:
    """One for Python state that is already there: what would need a new process cannot be asked for."""
    for key in ("argv", "args", "name", "env", "cwd"):
        if options.get(key):
            raise UsageError(f"a run in a session cannot have {key}: its process is there already; set it from inside")
    if options.get("language", "python") != "python":
        raise UsageError(f"a session runs python, not {options.get('language')!r}; use `run` of the sandbox")
    if isinstance(options.get("stdin"), int):
        raise UsageError("a run in a session takes its stdin as data, not as a descriptor")
    return make_request(policy, code, options)


def make_live_request(
    policy: Policy, code: str | bytes | None, terminal: tuple[int, int] | None, options: RunOptions
) -> RunRequest:
    """One whose input is written while it runs, unless the options say otherwise; with a terminal, if one is given."""
    request = make_request(policy, code, options)
    if terminal is None:
        return request if "stdin" in options else replace(request, stdin=Input.LIVE)
    if options.get("stdin") is not None:
        raise UsageError("a run with a terminal has no stdin of its own; write to the terminal")
    environment = {"TERM": _TERMINAL_KIND, **request.environment}
    return replace(request, stdin=Input.LIVE, terminal=checked_terminal(terminal), environment=environment)


def checked_terminal(size: tuple[int, int]) -> TerminalSize:
    columns, rows = size
    if not (0 < columns <= _MOST_COLUMNS and 0 < rows <= _MOST_COLUMNS):
        raise UsageError(f"a terminal of {columns} x {rows} cannot be; give columns and rows from 1 to {_MOST_COLUMNS}")
    return TerminalSize(columns, rows)


def make_request(policy: Policy, code: str | bytes | None, options: RunOptions) -> RunRequest:
    argv, language = options.get("argv"), find_language(options.get("language", "python"))
    if (code is None) == (argv is None):
        raise UsageError("give either code or argv, and not both")
    if argv is not None and not argv:
        raise UsageError("argv is empty; it needs at least the name of a program")
    source = None if code is None else _checked_source(code)
    return RunRequest(
        language=language.name,
        interpreter=None if source is None else language.interpreter,
        arguments=_checked_words("args", options.get("args", ())) if argv is None else _checked_words("argv", argv),
        source=source,
        script_name=_checked_name(options.get("name") or language.script_name(source or b""), language),
        environment=_checked_environment(options.get("env") or {}),
        cwd=_checked_text(options.get("cwd", ""), "cwd"),
        timeout_seconds=_checked_timeout(policy, options.get("timeout")),
        stdin=_checked_stdin(options.get("stdin")),
    )


def refuse_secrets(policy: Policy, variables: Mapping[str, str], source: SecretSource) -> None:
    """DeniedError for a variable with the value of a secret, which only the gateway may have."""
    for secret in policy.secrets if variables else ():
        try:
            value = secret.read(source)
        except MissingValueError:
            continue
        for name, text in variables.items():
            if value in text:
                raise DeniedError(
                    f"the variable {name} has the value of the secret {secret.name}, which never enters a sandbox; "
                    "leave it out: the gateway adds it to requests"
                )


def _checked_words(key: str, words: object) -> tuple[str, ...]:
    if not isinstance(words, list | tuple):
        raise UsageError(f"{key} {words!r} must be a list of words, not {_kind(words)}")
    return tuple(_checked_text(word, "argument") for word in cast("Sequence[object]", words))


def _checked_stdin(stdin: object) -> bytes | int | None:
    if isinstance(stdin, str):
        return _encoded(stdin, "stdin")
    if isinstance(stdin, bytes | bytearray):
        return bytes(stdin)
    if stdin is not None and (isinstance(stdin, bool) or not isinstance(stdin, int)):
        raise UsageError(f"stdin must be text, bytes or a descriptor's number, not {_kind(stdin)}")
    if stdin is not None:
        try:
            mode = os.fstat(stdin).st_mode
        except OSError as error:
            raise UsageError(f"stdin: descriptor {stdin} cannot be used: {error.strerror}") from error
        if stat.S_ISDIR(mode) or fcntl.fcntl(stdin, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY:
            raise UsageError(f"stdin: descriptor {stdin} cannot be read; give data, or a descriptor that can")
    return stdin


def _encoded(text: str, what: str) -> bytes:
    try:
        return os.fsencode(text)
    except UnicodeEncodeError as error:
        raise UsageError(f"{what} has a character that cannot be encoded at position {error.start}") from error


def _checked_source(code: object) -> bytes:
    source = code.encode("utf-8", "surrogatepass") if isinstance(code, str) else code
    if not isinstance(source, bytes):
        raise UsageError(f"the code must be text or bytes, not {_kind(code)}; a file's is Path(...).read_text()")
    if len(source) > _MAX_SOURCE_BYTES:
        size, limit = format_size(len(source)), format_size(_MAX_SOURCE_BYTES)
        raise UsageError(f"the source is {size}, more than {limit}; put the data into a file and mount it")
    position = source.find(b"\0")
    if position >= 0:
        line = source.count(b"\n", 0, position) + 1
        raise UsageError(f"the source has a NUL byte in line {line} (byte {position}); it is not a text file")
    return source


def _checked_name(name: object, language: Language) -> str:
    name = _checked_text(name, "script name")
    if name.startswith("/") and not language.toolchain:
        return _checked_place(name)
    if name in ("", ".", "..") or "/" in name or len(os.fsencode(name)) > 255:
        raise UsageError(f"script name {name!r} must be a plain file name")
    if language.toolchain and not name.lower().endswith(language.suffixes):
        wanted = " or ".join(language.suffixes)
        raise UsageError(f"script name {name!r} must end in {wanted}: compilers of {language.name} go by it")
    return name


def _checked_place(path: str) -> str:
    if posixpath.normpath(path) != path or path.startswith("//"):
        raise UsageError(f"script name {path!r} must be a plain file name, or the path of a file without detours")
    return path


def _checked_environment(environment: object) -> dict[str, str]:
    if not isinstance(environment, Mapping):
        raise UsageError(f"env must be a mapping of names to values, not {_kind(environment)}")
    checked: dict[str, str] = {}
    for key, value in cast("Mapping[object, object]", environment).items():
        name = _checked_text(key, "environment variable name")
        if not name or "=" in name:
            raise UsageError(f"environment variable name {name!r} must not be empty or contain '='")
        checked[name] = _checked_text(value, f"value of environment variable {name!r}")
    return checked


def _checked_timeout(policy: Policy, timeout: Seconds | None) -> float:
    limit = policy.resources.timeout
    if timeout is None:
        return limit
    seconds = read_seconds(timeout)
    if seconds > limit:
        wanted, allowed = format_duration(seconds), format_duration(limit)
        raise DeniedError(f"timeout {wanted} is more than the policy's resources.timeout of {allowed}")
    return seconds


def _checked_text(text: object, what: str) -> str:
    if isinstance(text, os.PathLike):
        text = os.fspath(cast("os.PathLike[str]", text))
    if not isinstance(text, str):
        raise UsageError(f"{what} {text!r} must be text, not {_kind(text)}")
    if "\0" in text:
        raise UsageError(f"{what} {text!r} has a NUL character, which no program can receive")
    if len(_encoded(text, what)) > _MAX_ARGUMENT_BYTES:
        raise UsageError(f"{what} is longer than {format_size(_MAX_ARGUMENT_BYTES)}; pass it on standard input")
    return text


def _kind(value: object) -> str:
    return "one text" if isinstance(value, str) else type(value).__name__
