"""Whether an awk program can run commands: by `system`, by pipes, by extensions."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fumehood.policy.commands.brackets import pattern_until
from fumehood.policy.commands.words import Word

_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_REGEX = re.compile(f"/(?!/){pattern_until('/')}/")
# After these, or at the beginning, a slash cannot divide.
_BEFORE_REGEX = "(,{}!~;&|\n"
_RUNS = re.compile(r"system|@|getline|extension")
_QUOTING = re.compile(r"[\"/#\\]")
_WRITES = re.compile(r"\bprintf?\b[^;{}]*>")
_PIPE = re.compile(r"(?<!\|)\|(?!\|)")
_SAFE_OPTIONS = re.compile(r"-F.*|-v.*|--version|--posix|--re-interval|--field-separator(=.*)?|--assign(=.*)?|--csv|-k")
_VALUED = ("-F", "-v", "--field-separator", "--assign")


def find_awk_hatch(arguments: Sequence[Word]) -> tuple[int, str] | None:
    """The place of the argument that opens it, and why."""
    position = 0
    while position < len(arguments):
        text = arguments[position].text
        if text is None and arguments[position].prefix.startswith(("-v", "-F")) and not arguments[position].is_many:
            if len(arguments[position].prefix) == 2 and not arguments[position].suffix:
                why = f"{arguments[position].raw} may have no value, and would take the next word for it"
                return position, f"{why}; put a space before the value"
            position += 1
            continue
        if text is None:
            return position, f"{arguments[position].raw} may hold a program of awk's, which cannot be read"
        if text == "--" or not text.startswith("-") or text == "-":
            position += text == "--"
            break
        if _SAFE_OPTIONS.fullmatch(text) is None:
            return position, f"awk's {text} is not known to be harmless"
        position += 1
        if text in _VALUED:
            if position < len(arguments) and arguments[position].is_many:
                return position, f"{arguments[position].raw} may hold a program of awk's, which cannot be read"
            position += 1
    if position >= len(arguments):
        return None
    program = arguments[position].text
    if program is None:
        return position, "awk's program is put together while it runs, so that it cannot be read"
    code = _stripped(program)
    if _RUNS.search(program) or _PIPE.search(code):
        return position, "awk's program can run other programs"
    if _WRITES.search(code) or (code == program and _may_write(code)):
        return position, "awk's program writes files; let the shell do that, with > after the command"
    return None


def _may_write(code: str) -> bool:
    """Where texts could not be taken out, a semicolon may be part of one."""
    before = code.rpartition(">")[0]
    return "print" in before and _QUOTING.search(before) is not None


def _stripped(program: str) -> str:
    """Without texts and patterns; as it is where a slash may be either a division or the beginning of a pattern."""
    code, at, last = list[str](), 0, ""
    while at < len(program):
        if found := _quotation(program, at, last):
            at, last = found.end(), '"'
            code.append(last)
        elif program[at] in '/"' or program.startswith("\\\n", at):
            return program
        elif program[at] == "#":
            end = program.find("\n", at)
            at = len(program) if end < 0 else end
        else:
            last = last if program[at] in " \t" else program[at]
            code.append(program[at])
            at += 1
    return "".join(code)


def _quotation(program: str, at: int, before: str) -> re.Match[str] | None:
    if program[at] == '"':
        return _STRING.match(program, at)
    if program[at] == "/" and (not before or before in _BEFORE_REGEX):
        return _REGEX.match(program, at)
    return None
