"""Which program to run: read from a file, the command line or standard input, as bytes and unchanged."""

from __future__ import annotations

import os

from fumehood.backends.languages import LANGUAGES, find_language, language_of_file
from fumehood.errors import UsageError
from fumehood.frozen import frozen

# Twice what a source may have: enough to be refused for its size, and an endless device has an end.
_MAX_READ_BYTES = 64 * 1024 * 1024
_DEFAULT_LANGUAGE = "python"
_LONGEST_FIRST_LINE = 256
_INTERPRETERS = ("python", "node")
NOTEBOOK = ".ipynb"
_NO_PROGRAMS = {
    ".csv": "data, not a program; show it to one with --mount",
    ".json": "data, not a program; show it to one with --mount",
    ".yaml": "data, not a program; a policy is given with --policy",
    ".yml": "data, not a program; a policy is given with --policy",
}


@frozen
class ProgramSource:
    code: bytes
    language: str
    name: str | None
    """The file name in tracebacks; None for the language's own default."""
    used_stdin: bool = False
    is_notebook: bool = False


def check_program(file: str | None, code: str | None, language: str | None, project: str | None = None) -> None:
    """Finds most mistakes before anything is done for the program. It is not opened, which a pipe would notice."""
    if language is not None:
        find_language(language)
    if file is None and code is None:
        raise UsageError("nothing to run: give a FILE, -c CODE, or - to read the code from standard input")
    if file is not None and code is not None:
        raise UsageError(f"both {file!r} and -c CODE are given; the program's own arguments come after `--`")
    if file is not None and file != "-":
        try:
            os.stat(file)
        except OSError as error:
            raise _unreadable(repr(file), error, _meant(file, project)) from error


def _meant(file: str, project: str | None) -> str:
    """What a file that is not there may have been meant to be."""
    if project is not None and os.path.exists(inside := os.path.join(project, file)):
        return f"; it is named from here, not from the project: {inside}"
    if file.rstrip("0123456789.") in _INTERPRETERS:
        return f"; a program is named without {file!r} in front"
    from shutil import which

    if project is None and which(file) is not None:
        return f"; a command is `hood run --language sh -c '{file} ...'`"
    if project is None and any(character in file for character in "( ="):
        return "; code is given with -c CODE"
    return ""


def read_program(file: str | None, code: str | None, language: str | None, project: str | None = None) -> ProgramSource:
    check_program(file, code, language, project)
    chosen = language or _DEFAULT_LANGUAGE
    if code is not None:
        return ProgramSource(os.fsencode(code), chosen, None)
    if file is None or file == "-":
        return ProgramSource(_read(0, "standard input"), chosen, None, used_stdin=True)
    source = _read(file, repr(file))
    found = language or _language_of(file, source)
    is_notebook = language is None and file.lower().endswith(NOTEBOOK)
    return ProgramSource(source, found, os.path.basename(file), is_notebook=is_notebook)


def _language_of(file: str, source: bytes) -> str:
    """By the suffix, else by the first line (`#!`), else Python if there is no suffix that says otherwise."""
    suffix = os.path.splitext(file)[1].lower()
    if found := language_of_file(suffix):
        return found.name
    if source.startswith(b"#!"):
        return _language_of_interpreter(file, source)
    if suffix == NOTEBOOK:
        return _DEFAULT_LANGUAGE
    if suffix in _NO_PROGRAMS:
        raise UsageError(f"{file!r} is {_NO_PROGRAMS[suffix]}")
    if suffix:
        known = " ".join(suffix for language in LANGUAGES.values() for suffix in language.suffixes)
        raise UsageError(f"{file!r}: no language has the suffix {suffix}; say which with --language (known: {known})")
    return _DEFAULT_LANGUAGE


def _language_of_interpreter(file: str, source: bytes) -> str:
    line = os.fsdecode(source[2:_LONGEST_FIRST_LINE].split(b"\n", 1)[0])
    words = [word for word in line.split() if not word.startswith("-")]
    if words and os.path.basename(words[0]) == "env":
        words = [word for word in words[1:] if "=" not in word]
    name = os.path.basename(words[0]).rstrip("0123456789.") if words else ""
    try:
        return find_language(name).name
    except UsageError:
        raise UsageError(f"{file!r} asks for {line.strip()!r}, which is not a language here; use --language") from None


def _read(file: str | int, what: str) -> bytes:
    try:
        with open(file, "rb", closefd=isinstance(file, str)) as stream:
            return stream.read(_MAX_READ_BYTES)
    except OSError as error:
        raise _unreadable(what, error) from error


def _unreadable(what: str, error: OSError, meant: str = "") -> UsageError:
    reason = error.strerror or str(error)
    if isinstance(error, FileNotFoundError):
        reason = "there is no such file"
    if isinstance(error, IsADirectoryError):
        reason = "it is a folder; name a file in it"
    return UsageError(f"cannot read {what}: {reason}{meant}")
