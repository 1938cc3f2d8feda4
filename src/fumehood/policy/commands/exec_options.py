"""Options and scripts by which awk and sed run other programs or write files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from fumehood.policy.commands.programs import AWK, SED
from fumehood.policy.commands.syntax import Word, joined
from fumehood.policy.commands.write_targets import WriteTargets


def _pattern_until(mark: str) -> str:
    """The regular expression of a text up to the mark, with escapes and brackets in it; without line breaks.

    Programs differ in where brackets end, and in whether the mark may stand within. So brackets hold neither that mark
    nor other brackets, but for classes such as `[:alpha:]`.
    """
    mark = re.escape(mark)
    bracket = rf"\[(?!\^?\])\^?(?:\[:[a-z]+:\]|[^\[\]\\\n{mark}]|\\[tnrswfv])*\]"
    return rf"(?:[^\[\\\n{mark}]|\\.|{bracket})*"


_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_REGEX = re.compile(f"/(?!/){_pattern_until('/')}/")
# After these, or at the beginning, a slash cannot divide.
_BEFORE_REGEX = "(,{}!~;&|\n"
_RUNS = re.compile(r"system|@|getline|extension")
_QUOTING = re.compile(r"[\"/#\\]")
_WRITES = re.compile(r"\bprintf?\b[^;{}]*>")
_PIPE = re.compile(r"(?<!\|)\|(?!\|)")
_SAFE_OPTIONS_OF_AWK = re.compile(
    r"-F.*|-v.*|--version|--posix|--re-interval|--field-separator(=.*)?|--assign(=.*)?|--csv|-k"
)
_VALUED = ("-F", "-v", "--field-separator", "--assign")


def find_script_problem(name: str, arguments: Sequence[Word], targets: WriteTargets) -> tuple[int, str] | None:
    """The place of the argument by which awk or sed run another program or write a file, and why."""
    if name in AWK:
        return find_awk_exec_option(arguments)
    return find_sed_exec_option(arguments, targets) if name in SED else None


def find_awk_exec_option(arguments: Sequence[Word]) -> tuple[int, str] | None:
    """The place of the argument that lets it, and why."""
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
        if _SAFE_OPTIONS_OF_AWK.fullmatch(text) is None:
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


# A backup has the file's name and such an ending.
_ENDING = r"(?:[.~][A-Za-z0-9._~-]*)?"
_SAFE_OPTIONS_OF_SED = re.compile(
    rf"-[nrEsuz]+|-[nrEsz]*i{_ENDING}|--in-place(?:={_ENDING})?|--quiet|--silent|--regexp-extended|--separate"
    r"|--null-data|--unbuffered|--posix|--sandbox|--version"
)
_IN_PLACE = re.compile(r"-[nrEsz]*i(.*)|--in-place(?:=(.*))?")
_SCRIPT_FOLLOWS = ("-e", "--expression", "-ne", "-re", "-Ee", "-nre", "-nEe")
_ADDRESS = re.compile(rf"(?:[0-9]+(?:~[0-9]+)?|\$|\+[0-9]+|/{_pattern_until('/')}/[IM]*)")
# Between the parts of `s` and `y`: marks that mean nothing in them.
_MARKS = "/|,#:;@!%_~+=-"
# After `a`, `i` and `c`: one line, which may be the next one. A backslash at its end would bring another.
_TEXT = re.compile(r"(?:[ \t]*\\(?:\n|(?=[ \t]*[^ \t\\\n])))?[^\\\n]*(?:\n|$)")
_WITHOUT_WORDS = "pdqQ=nNhHgGxDPl"
_FLAGS = re.compile(r"[gpiIM0-9]*")
# Programs differ in whether a brace ends a label, so one may stand there only where the command ends either way.
_LABEL = re.compile(r"[ \t]*[A-Za-z0-9_]*[ \t]*(?:\}[ \t]*)*(?=[;\n]|\Z)")
_UNREADABLE = "sed's script is put together while it runs, so that it cannot be read"


def find_sed_exec_option(arguments: Sequence[Word], targets: WriteTargets) -> tuple[int, str] | None:
    """The place of the argument that lets it, and why."""
    position, endings = 0, list[str]()
    scripts, operands = list[int](), list[int]()
    while position < len(arguments):
        word = arguments[position]
        text = word.text
        if text == "--":
            operands += range(position + 1, len(arguments))
            break
        if not word.may_be_option or text == "-":
            operands.append(position)
        elif text is None:
            return position, f"{word.raw} may turn out to be an option of sed's"
        elif text in _SCRIPT_FOLLOWS:
            position += 1
            scripts.append(position)
        elif _SAFE_OPTIONS_OF_SED.fullmatch(text) is None:
            return position, f"sed's {text} is not known to be harmless"
        if found := _IN_PLACE.match(text or ""):
            endings.append(found[1] or found[2] or "")
        position += 1
    # Without -e the first operand is the script; with it, wherever it stands, all are files.
    if not scripts:
        scripts, operands = operands[:1], operands[1:]
    found = filter(None, (_problem_of_script(arguments, number) for number in scripts))
    return next(found, None) or _problem_of_files(arguments, operands, endings, targets)


def _problem_of_script(arguments: Sequence[Word], position: int) -> tuple[int, str] | None:
    text = arguments[position].text if position < len(arguments) else ""
    if text is None:
        return position, _UNREADABLE
    return (
        None if _is_harmless(text) else (position, "sed's script can run programs or write files, or is not understood")
    )


def _problem_of_files(
    arguments: Sequence[Word], files: Sequence[int], endings: Sequence[str], targets: WriteTargets
) -> tuple[int, str] | None:
    """Of the files that -i changes, and of their backups."""
    for position, ending in ((position, ending) for position in files for ending in endings):
        word = arguments[position]
        backup = replace(word, pieces=joined([*word.pieces, ending]), raw=f"{word.raw}{ending}")
        if found := targets.problem(word) or targets.problem(backup):
            return position, f"sed -i: {found[0]}"
    return None


def _is_harmless(script: str) -> bool:
    at = 0
    while at < len(script):
        if script[at] in " \t\n;}":
            at += 1
            continue
        step = _command(script, at)
        if step is None:
            return False
        at = step
    return True


def _command(script: str, at: int) -> int | None:
    """The end of one command that is known to be harmless."""
    if found := _ADDRESS.match(script, at):
        at = found.end()
        if script[at : at + 1] == ",":
            found = _ADDRESS.match(script, at + 1)
            if found is None:
                return None
            at = found.end()
    while script[at : at + 1] in (" ", "!") and at < len(script):
        at += 1
    match script[at : at + 1]:
        case "{":
            return at + 1
        case "s" | "y":
            return _substitution(script, at + 1)
        case "a" | "i" | "c":
            found = _TEXT.match(script, at + 1)
            return found.end() if found else None
        case "b" | "t" | "T" | ":":
            found = _LABEL.match(script, at + 1)
            return found.end() if found else None
        case char if char and char in _WITHOUT_WORDS:
            return _ended(script, at + 1)
        case _:
            return None


def _substitution(script: str, at: int) -> int | None:
    mark = script[at : at + 1]
    if not mark or mark not in _MARKS:
        return None
    text = re.compile(_pattern_until(mark), re.DOTALL)
    for _ in range(2):
        part = text.match(script, at + 1)
        if part is None or script[part.end() : part.end() + 1] != mark:
            return None
        at = part.end()
    flags = _FLAGS.match(script, at + 1)
    return _ended(script, flags.end() if flags else at + 1)


def _ended(script: str, at: int) -> int | None:
    """A command ends at a separator; anything else belongs to it and is not understood."""
    while script[at : at + 1] == " ":
        at += 1
    return at if script[at : at + 1] in ("", ";", "\n", "}") else None
