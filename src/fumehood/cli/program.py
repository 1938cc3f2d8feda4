"""Which program to run: read from a file, the command line or standard input, as bytes and unchanged."""

from __future__ import annotations

import os
from dataclasses import dataclass

from fumehood.backends.languages import find_language, language_of_file
from fumehood.errors import UsageError

# Twice what a source may have: enough to be refused for its size, and an endless device has an end.
_MAX_READ_BYTES = 64 * 1024 * 1024
_DEFAULT_LANGUAGE = "python"


@dataclass(frozen=True, slots=True)
class Program:
    code: bytes
    language: str
    name: str | None
    """As tracebacks show it; None for the language's own default."""
    used_stdin: bool = False


def read_program(file: str | None, code: str | None, language: str | None) -> Program:
    if language is not None:
        find_language(language)
    chosen = language or _DEFAULT_LANGUAGE
    match file, code:
        case None, None:
            raise UsageError("nothing to run: give a FILE, -c CODE, or - to read the code from standard input")
        case str(), str():
            raise UsageError(f"both {file!r} and -c CODE are given; the program's own arguments come after `--`")
        case None, str():
            return Program(os.fsencode(code), chosen, None)
        case "-", None:
            return Program(_read(0, "standard input"), chosen, None, used_stdin=True)
        case str(), None:
            return Program(_read(file, repr(file)), language or _language_of(file), os.path.basename(file))


def _language_of(file: str) -> str:
    language = language_of_file(os.path.splitext(file)[1])
    return language.name if language else _DEFAULT_LANGUAGE


def _read(file: str | int, what: str) -> bytes:
    try:
        with open(file, "rb", closefd=isinstance(file, str)) as stream:
            return stream.read(_MAX_READ_BYTES)
    except OSError as error:
        raise UsageError(f"cannot read {what}: {_reason(error)}") from error


def _reason(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    if isinstance(error, IsADirectoryError):
        return "it is a folder; name a file in it"
    return error.strerror or str(error)
