"""The shell's own commands that a line may use, and how: whatever is not here is not understood.

Left out on purpose: those that run text or files (`eval`, `trap`, `source`, `command name`, `jobs -x`), that give names
another meaning (`declare`, `alias`, `enable`, `hash`), and that evaluate their words (`let`, `[ -v`, `printf -v`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from fumehood.policy.commands.decision import RefusalError
from fumehood.policy.commands.syntax import Assignment, Hole, SimpleCommand, Word, known
from fumehood.policy.commands.variables import check_assignment, check_name, names

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LETTERS_OF_SET = re.compile(r"[-+][eufxvC]+")
_NAMES_OF_SET = names("pipefail errexit nounset xtrace noglob noclobber verbose")
_NAMES_OF_SHOPT = names("nullglob globstar nocaseglob nocasematch inherit_errexit -s -u -q")
_FLAGS_OF_READ = re.compile(r"-[rs]+")
_VALUED_OF_READ = re.compile(r"-[rs]*([dnNtpua])")
_UNARY = names("-b -c -d -e -f -g -h -k -n -p -r -s -t -u -w -x -z -G -L -N -O -S")
_BINARY = names("= == != < > -eq -ne -lt -le -gt -ge -nt -ot -ef")
# The conversions that print, each as it is known: %n sets a variable.
_FORMAT = re.compile(
    r"(?:[^%\\]|\\.|%%|%[-+ #0']*(?:[0-9]+|\*)?(?:\.(?:[0-9]*|\*))?(?:[diouxXeEfFgGaAcsbq]|\([^()]*\)T))*", re.DOTALL
)
_NOT_UNDERSTOOD = "not understood"


def check_builtin(name: str, words: Sequence[Word]) -> None:
    """Raises RefusalError. `words` are those after the name."""
    _CHECKS[name](name, words)


def set_by(simple: SimpleCommand) -> Iterator[Assignment]:
    """The variables that a builtin sets, as far as its words are understood; the rest is refused when it is judged."""
    head, *words = simple.words or [known("")]
    if head.text in ("export", "readonly"):
        yield from filter(lambda assignment: assignment.values, map(_declared, words))
    elif head.text in ("read", "mapfile", "readarray", "unset"):
        # What was unset has no value; what is read may be anything.
        values = (known(""),) if head.text == "unset" else ()
        yield from (Assignment(word.text, values, word.start, word.end) for word in words if word.text)


def check_readonly(commands: Sequence[SimpleCommand], assignments: Sequence[Assignment]) -> None:
    """Raises RefusalError for what sets a variable that cannot be set: bash then leaves out the rest of the line."""
    heads = (simple for simple in commands if simple.words and simple.words[0].text == "readonly")
    fixed = {(word.start, _declared(word).name) for simple in heads for word in simple.words[1:]}
    names_of_fixed = {name for _, name in fixed}
    for assignment in assignments:
        if assignment.name in names_of_fixed and (assignment.start, assignment.name) not in fixed:
            shown, why = (assignment.start, assignment.end), f"{assignment.name} is readonly in this line"
            raise RefusalError(*shown, f"{why}, so that it cannot be set", "leave readonly out, or use another name")


def exported_by(simple: SimpleCommand) -> Iterator[str]:
    """The variables whose values, whenever they are set, go to programs."""
    head, *words = simple.words or [known("")]
    if head.text == "export":
        yield from (_declared(word).name for word in words)
    if simple.words:
        # Before a command: for a shell that it starts, and in some for good. `IFS=` may stand before `read` alone.
        yield from (assignment.name for assignment in simple.assignments if assignment.name != "IFS")


def _refuse(name: str, words: Sequence[Word], why: str = _NOT_UNDERSTOOD, fix: str = "write it plainly") -> None:
    start, end = (words[0].start, words[-1].end) if words else (0, 1)
    raise RefusalError(start, end, f"{name}: {why}", fix)


def _anything(name: str, words: Sequence[Word]) -> None:
    """They print, go to a folder, or do nothing."""


def _nothing(name: str, words: Sequence[Word]) -> None:
    if words:
        _refuse(name, words)


def _one_word(name: str, words: Sequence[Word]) -> None:
    if len(words) > 1 or any(word.is_many or word.prefix.startswith("-") for word in words):
        _refuse(name, words)


def _digits(name: str, words: Sequence[Word]) -> None:
    if any(word.text is None or not word.text.isdigit() for word in words):
        _refuse(name, words, fix="use a number")


def _declare(name: str, words: Sequence[Word]) -> None:
    for word in words:
        if word.may_fall_apart:  # sh splits it, where bash does not
            _refuse(name, [word], f"{word.raw} may become several words", "put quotes around it")
        assignment = _declared(word)
        if _NAME.fullmatch(assignment.name) is None:
            _refuse(name, [word], "it cannot be known which variable this sets", f"write it as: {name} NAME=value")
        if assignment.values:
            is_exported = name == "export"
            check_assignment(assignment.name, assignment.values, (word.start, word.end), is_exported=is_exported)
        elif name == "readonly":
            # It would keep the value of the environment, and bash leaves out the line that sets another.
            _refuse(name, [word], "it keeps a value that is not known", f"write it as: {name} NAME=value")
        else:
            check_name(assignment.name, (word.start, word.end))


def _declared(word: Word) -> Assignment:
    left, is_set, right = word.prefix.partition("=")
    if not is_set:
        return Assignment(left if word.text is not None else "", (), word.start, word.end)
    value = known(right) if word.text is not None else Word((right, *word.pieces[1:]), word.start, word.end, "")
    return Assignment(left, (value,), word.start, word.end)


def _plain_names(name: str, words: Sequence[Word]) -> None:
    for word in words:
        if word.text is None or _NAME.fullmatch(word.text) is None:
            _refuse(name, [word], "it cannot be known which variable this sets", "use plain names")
        check_assignment(word.text or "", (), (word.start, word.end))


def _unset(name: str, words: Sequence[Word]) -> None:
    for word in words[1:] if words and words[0].text == "-v" else words:
        if word.text is None or _NAME.fullmatch(word.text) is None:
            _refuse(name, [word], "it cannot be known which variable this unsets", "use plain names")
        check_name(word.text or "", (word.start, word.end))


def _read(name: str, words: Sequence[Word]) -> None:
    place = 0
    while place < len(words) and words[place].prefix.startswith("-"):
        text = words[place].text or ""
        if found := _VALUED_OF_READ.fullmatch(text):
            if place + 1 >= len(words) or words[place + 1].is_many:
                _refuse(name, words)
            if found[1] == "a":
                _plain_names(name, words[place + 1 : place + 2])
            place += 1
        elif _FLAGS_OF_READ.fullmatch(text) is None:
            _refuse(name, [words[place]])
        place += 1
    _plain_names(name, words[place:])


def _mapfile(name: str, words: Sequence[Word]) -> None:
    _plain_names(name, words[1:] if words and words[0].text == "-t" else words)


def _printf(name: str, words: Sequence[Word]) -> None:
    for number, word in enumerate(words):
        if word.text == "--":
            continue
        if word.may_be_option:
            _refuse(name, [word], "it may turn out to be -v, which sets a variable", "begin with a format: printf '%s'")
        # Without words to print, whatever a value brings in finds no name to set.
        is_alone = number == len(words) - 1 and not word.is_many
        if not is_alone and not _is_format(word):
            _refuse(name, [word], "it may set a variable, or is no known format", "begin with a format: printf '%s'")
        if not word.may_vanish:
            return


def _is_format(word: Word) -> bool:
    """A number or a plain word may stand between conversions, and not within one."""
    return all(_FORMAT.fullmatch(piece) if isinstance(piece, str) else _brings_none(piece) for piece in word.pieces)


def _brings_none(hole: Hole) -> bool:
    return hole.is_number or (
        bool(hole.choices) and not any(mark in choice for choice in hole.choices for mark in "%*")
    )


def _set(name: str, words: Sequence[Word]) -> None:
    place = 0
    while place < len(words) and words[place].text != "--":
        text = words[place].text or ""
        if text[-1:] == "o" and (text in ("-o", "+o") or _LETTERS_OF_SET.fullmatch(text[:-1])):
            place += 1
            if place >= len(words) or words[place].text not in _NAMES_OF_SET:
                _refuse(name, words)
        elif _LETTERS_OF_SET.fullmatch(text) is None:
            _refuse(name, [words[place]], "it may change how the line is read", "use set -e, -u, -x, -o pipefail")
        place += 1


def _shopt(name: str, words: Sequence[Word]) -> None:
    for word in words:
        if word.text not in _NAMES_OF_SHOPT:
            _refuse(name, [word], "it may change how the line is read", "leave it out")


def _test(name: str, words: Sequence[Word]) -> None:
    """Three shapes alone: with more words, or an operator that comes from a variable, it may evaluate text."""
    shown = words
    if name == "[":
        if not words or words[-1].text != "]":
            _refuse(name, words, fix="close it with ]")
        words = words[:-1]
    words = words[1:] if words and words[0].text == "!" else words
    operators = [word.text for word in words]
    is_understood = (
        len(words) <= 1 or (len(words) == 2 and operators[0] in _UNARY) or (len(words) == 3 and operators[1] in _BINARY)
    )
    if not is_understood:
        _refuse(name, shown, fix="use one comparison in each [ ... ], and && or || between them")
    if any(hole.is_many and not (hole.is_plain or hole.is_number) for word in words for hole in word.holes):
        _refuse(name, shown, "a variable without quotes may become an operator", "put quotes around variables")


def _command(name: str, words: Sequence[Word]) -> None:
    if not words or words[0].text not in ("-v", "-V"):
        _refuse(name, words, fix="write the command without it; command -v looks a name up")


def _jobs(name: str, words: Sequence[Word]) -> None:
    if any(word.text not in ("-l", "-p", "-r", "-s") for word in words):
        _refuse(name, words)


def _wait(name: str, words: Sequence[Word]) -> None:
    if any(word.prefix.startswith("-") or (word.text is None and word.may_be_option) for word in words):
        _refuse(name, words, fix='use wait, or wait "$!"')


_CHECKS: dict[str, Callable[[str, Sequence[Word]], None]] = {
    **dict.fromkeys((":", "true", "false", "cd", "echo", "pushd", "pwd", "type"), _anything),
    **dict.fromkeys(("popd", "times"), _nothing),
    **dict.fromkeys(("break", "continue", "shift", "umask"), _digits),
    **dict.fromkeys(("export", "readonly"), _declare),
    **dict.fromkeys(("mapfile", "readarray"), _mapfile),
    **dict.fromkeys(("test", "["), _test),
    "command": _command,
    "exec": _nothing,
    "exit": _one_word,
    "jobs": _jobs,
    "printf": _printf,
    "read": _read,
    "set": _set,
    "shopt": _shopt,
    "unset": _unset,
    "wait": _wait,
}
BUILTINS = frozenset(_CHECKS)
# In sh these would be programs.
BUILTINS_OF_BASH = names("mapfile popd pushd readarray shopt")
# They would change what other words of the line mean, run text or files, or evaluate their words once more.
REFUSED_BUILTINS = names(
    """
    . alias bind builtin caller compgen complete compopt coproc declare dirs disown enable eval fc getopts hash help
    history let local logout return source suspend trap typeset ulimit unalias
    """
)
