"""Programs that run code of a project by the name that a rule gives: which of their own options leave it at that code.

Behind `npm run test` npm still takes options: one names the shell that runs the script. What stands after `--` is the
script's. Options are compared by their names alone; whether a word is the value of one or an operand does not matter.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from fumehood.policy.commands.families import FIX, UnsafeWord
from fumehood.policy.commands.rules import CommandRule
from fumehood.policy.commands.syntax import Word
from fumehood.policy.commands.variables import names

_OF_NPM = names(
    """
    s silent q quiet d dd loglevel if-present w workspace workspaces ws include-workspace-root no-audit no-fund no-save
    ignore-scripts legacy-peer-deps strict-peer-deps save-dev D save-exact E save S omit include production only offline
    prefer-offline prefer-online dry-run json progress no-progress color no-color no-optional foreground-scripts force f
    g global no-package-lock package-lock-only y yes frozen-lockfile no-frozen-lockfile v version help
    """
)
_HARMLESS = {
    **dict.fromkeys(("npm", "pnpm", "yarn"), _OF_NPM),
    "cargo": names(
        """
        release r all-features no-default-features features F workspace all p package exclude lib bins bin tests test
        examples example benches bench all-targets j jobs v vv verbose q quiet offline locked frozen no-run
        no-fail-fast message-format color profile doc keep-going no-deps check edition
        """
    ),
    "go": names(
        """
        v x n a race msan asan short run skip bench benchtime benchmem count timeout cover covermode coverpkg json
        failfast parallel p cpu list shuffle tags mod trimpath work buildvcs
        """
    ),
    "make": names("j k s B n i w O l jobs keep-going silent quiet always-make dry-run just-print ignore-errors"),
}
_HARMLESS["gmake"] = _HARMLESS["make"]
RUNNERS = frozenset(_HARMLESS)
_OPTION = re.compile(r"--?([A-Za-z][A-Za-z-]*?)(?:=.*|[0-9]+)?", re.DOTALL)
_COUNT = re.compile(r"[0-9]+")
_COUNTED = frozenset({"-j", "-l", "--jobs"})
# Of these every other word is something more to be made, or a variable.
_WITH_TARGETS = frozenset({"make", "gmake"})


def is_harmless_option(program: str, option: str) -> bool:
    found = _OPTION.fullmatch(option)
    return found is not None and found[1] in _HARMLESS.get(program, ())


def words_left_free(rule: CommandRule) -> int | None:
    """How many words a rule has for those of the program; None when it says nothing of these."""
    if len(rule.words) == 1 or (rule.program in _WITH_TARGETS and rule.words[-1] == "*"):
        return None
    return 1 if rule.option else len(rule.words) - 1


def find_unsafe_word_of_runner(
    name: str, arguments: Sequence[Word], position: int | None, granted: frozenset[str]
) -> UnsafeWord | None:
    """From that position on, where the words of its rule end."""
    for number in range(len(arguments) if position is None else position, len(arguments)):
        word, before = arguments[number], arguments[number - 1].text if number else None
        is_count = before in _COUNTED and _COUNT.fullmatch(word.text or "") is not None
        if name in _WITH_TARGETS and not word.may_be_option and not is_count:
            why = f"{word.raw} is another target or a variable of {name}, and the rule does not name it"
            return UnsafeWord(number, "", why, FIX.format(" ".join((name, *(other.raw for other in arguments)))))
        if word.text == "--" and name not in _WITH_TARGETS:
            return None
        if not word.may_be_option or (word.text or "").partition("=")[0] in granted:
            continue
        found = _OPTION.fullmatch(word.text or "")
        if found is None or found[1] not in _HARMLESS[name]:
            why = f"{word.raw} may be an option of {name} itself, and is not known to be harmless"
            return UnsafeWord(number, "", why, "write -- before what is for the script, or add a rule that spells it")
    return None
