"""What the shell's own commands may not do without the line becoming unreadable."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from fumehood.policy.commands.script import Arithmetic, Assignment
from fumehood.policy.commands.variables import Ledger
from fumehood.policy.commands.verdict import RefusedError
from fumehood.policy.commands.words import Word, known

_OPTIONS_OF_SET = re.compile(r"[-+][eufxvCbhmE]+")
_NAMES_OF_SET = frozenset({"pipefail", "errexit", "nounset", "xtrace", "noglob", "noclobber", "verbose", "errtrace"})
_NAMES_OF_SHOPT = frozenset(
    {"nullglob", "globstar", "dotglob", "failglob", "nocaseglob", "nocasematch", "inherit_errexit"}
)
_DECLARING = re.compile(r"-[aAgrxlup]+")
_VARIABLE = re.compile(r"\$[A-Za-z_#?][A-Za-z0-9_]*")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def check_builtin(name: str, arguments: Sequence[Word], ledger: Ledger, shown: tuple[int, int]) -> None:
    """Raises RefusedError."""
    check = _CHECKS.get(name)
    if check is not None:
        check(name, arguments, ledger, shown)


def _refuse(name: str, word: Word, why: str, shown: tuple[int, int]) -> None:
    start, end = (word.start, word.end) if word.end else shown
    raise RefusedError(start, end, f"{name}: {why}", "leave it out")


def _declare(name: str, arguments: Sequence[Word], ledger: Ledger, shown: tuple[int, int]) -> None:
    exports = name == "export"
    for word in arguments:
        if word.prefix.startswith("-") and word.text != "--":
            exports = exports or "x" in word.prefix
            if word.text is None or _DECLARING.fullmatch(word.text) is None:
                _refuse(name, word, f"{word.raw} gives a name another meaning", shown)
            continue
        left, is_set, right = word.prefix.partition("=")
        left = left.removesuffix("+")
        if _NAME.fullmatch(left) is None or (not is_set and word.text is None):
            _refuse(name, word, "it cannot be known which variable this sets", shown)
        value = known(right) if word.text is not None else Word(word.pieces, 0, 0, word.raw.partition("=")[2])
        assignment = Assignment(left, (value,) if is_set else (), word.start, word.end)
        ledger.assign(assignment, shown, is_exported=exports)


def _names(name: str, arguments: Sequence[Word], ledger: Ledger, shown: tuple[int, int]) -> None:
    """Whatever may be a variable's name here is taken for one."""
    for word in arguments:
        if name == "wait" and word.raw in ("$!", '"$!"'):
            continue
        if word.text is None and word.may_be_option:
            _refuse(name, word, "it cannot be known which variable this sets", shown)
        if word.text is not None and name in ("mapfile", "readarray") and word.text.startswith(("-C", "-c")):
            _refuse(name, word, f"{word.text} runs a command for each line", shown)
        if "[" in word.raw:
            _refuse(name, word, "a subscript can run commands", shown)
        for name_of_variable in _possible_names(word.text or ""):
            ledger.assign(Assignment(name_of_variable, (), word.start, word.end), shown)


def _possible_names(text: str) -> list[str]:
    """The word itself, or what follows the letter of an option: `-aPATH` is `-a PATH`."""
    places = range(2, len(text)) if text.startswith("-") else range(1)
    return [text[place:] for place in places if _NAME.fullmatch(text[place:])]


def _printf(name: str, arguments: Sequence[Word], ledger: Ledger, shown: tuple[int, int]) -> None:
    if not arguments or not arguments[0].may_be_option or arguments[0].text in ("-", "--"):
        return
    target = arguments[1].text if arguments[0].text == "-v" and len(arguments) > 1 else None
    if target is None or _NAME.fullmatch(target) is None:
        _refuse(name, arguments[0], "it cannot be known which variable this sets", shown)
    else:
        ledger.assign(Assignment(target, (), arguments[1].start, arguments[1].end), shown)


def _set(name: str, arguments: Sequence[Word], ledger: Ledger, shown: tuple[int, int]) -> None:
    follows = False
    for word in arguments:
        if word.text == "--":
            return
        if follows:
            if word.text not in _NAMES_OF_SET:
                _refuse(name, word, f"{word.raw} changes how the line is read", shown)
            follows = False
        elif word.text in ("-o", "+o", "-eo", "-euo", "-exo", "-euxo", "-eufo", "-uo", "-ex", "-eux"):
            follows = word.text.endswith("o")
        elif word.text is None and not word.may_be_option:
            continue
        elif word.text is None or (word.text[:1] in ("-", "+") and _OPTIONS_OF_SET.fullmatch(word.text) is None):
            _refuse(name, word, f"{word.raw} may change how the line is read", shown)


def _shopt(name: str, arguments: Sequence[Word], ledger: Ledger, shown: tuple[int, int]) -> None:
    for word in arguments:
        if word.text not in (*_NAMES_OF_SHOPT, "-s", "-u", "-q", "-p"):
            _refuse(name, word, f"{word.raw} may change how the line is read", shown)


def _unset(name: str, arguments: Sequence[Word], ledger: Ledger, shown: tuple[int, int]) -> None:
    for word in arguments:
        if word.text != "-v" and (word.text is None or _NAME.fullmatch(word.text) is None):
            _refuse(name, word, "only variables can be unset, by their plain names", shown)
        if word.text and word.text != "-v":
            ledger.assign(Assignment(word.text, (), word.start, word.end), shown)


def _let(name: str, arguments: Sequence[Word], ledger: Ledger, shown: tuple[int, int]) -> None:
    for word in arguments:
        ledger.compute(Arithmetic(word.raw.strip("'\""), word.start, word.end), shown)


def _test(name: str, arguments: Sequence[Word], ledger: Ledger, shown: tuple[int, int]) -> None:
    for number, word in enumerate(arguments):
        unary = number == 0 or arguments[number - 1].text in ("!", "(", "-a", "-o")
        if word.text in ("-v", "-R") or (unary and word.is_many and not _VARIABLE.fullmatch(word.raw)):
            _refuse(name, word, f"{word.raw} can evaluate text as code; put quotes around variables", shown)
        elif unary and word.is_many:
            # Without quotes it may become an operator of its own, unless it is a number.
            ledger.compute(Arithmetic(word.raw, word.start, word.end), shown)


_CHECKS: dict[str, Callable[[str, Sequence[Word], Ledger, tuple[int, int]], None]] = {
    "export": _declare,
    "declare": _declare,
    "typeset": _declare,
    "local": _declare,
    "readonly": _declare,
    "read": _names,
    "getopts": _names,
    "mapfile": _names,
    "readarray": _names,
    "wait": _names,
    "printf": _printf,
    "set": _set,
    "shopt": _shopt,
    "unset": _unset,
    "let": _let,
    "test": _test,
    "[": _test,
}
