"""The rules of `commands.allow` and `commands.deny`.

A rule is a command's leading words: `ls`, `git status`, `git log *`. Words are set apart by blanks, or held together by
quotes. `*` in a word stands for any characters of that word; as the last word it stands for one word or more.

An allow rule has to match word for word; a deny rule matches whatever could turn out to be the command that it means.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from fumehood.policy.commands.patterns import matches, possibly
from fumehood.policy.commands.syntax import Word

_SYSTEM_PLACE = re.compile(r"/(?:usr/(?:local/)?)?s?bin/([^/]+)")
_SYNTAX = re.compile(r"[;&|<>()`$\\\n]")
_CLUSTER = re.compile(r"-[A-Za-z0-9]+")
# Other spellings of options, where a rule would otherwise be easily missed.
_SAME = {
    "rm": {"--recursive": "-r", "-R": "-r", "--force": "-f"},
    "cp": {"--recursive": "-r", "-R": "-r", "-a": "-r", "--archive": "-r", "--force": "-f"},
    "chmod": {"--recursive": "-R"},
    "chown": {"--recursive": "-R"},
    "git": {"--force": "-f", "--force-with-lease": "-f"},
}
# Their options are words with one dash, not letters that can be put together.
_LONG_WITH_ONE_DASH = frozenset({"find", "java", "javac", "go", "terraform", "openssl", "convert", "ffmpeg", "gcc"})


@dataclass(frozen=True, slots=True)
class CommandRule:
    text: str
    words: tuple[str, ...]

    @property
    def program(self) -> str:
        return self.words[0]

    @property
    def names_program(self) -> bool:
        """Whether it names the program literally, without a pattern."""
        return "*" not in self.program

    @property
    def is_open(self) -> bool:
        """It says nothing of the program, and so covers only those of which it is known what they do."""
        return not self.program.strip("*")

    def allows(self, program: str, arguments: Sequence[Word]) -> bool:
        if not _is_program(self.program, program):
            return False
        wanted = self.words[1:]
        for number, pattern in enumerate(wanted):
            if pattern == "*" and number == len(wanted) - 1:
                return len(arguments) > number
            if number >= len(arguments) or not _surely(arguments[number], pattern):
                return False
        return True

    @property
    def option(self) -> str | None:
        """What a rule such as `sort -o` or `git log --output` is about: that option, wherever it stands."""
        last = self.words[-1]
        is_option = 2 <= len(self.words) <= 3 and len(last) > 1 and last.startswith("-")
        return (
            last
            if is_option and "*" not in last and not any(word.startswith("-") for word in self.words[:-1])
            else None
        )

    def denies(self, program: str, arguments: Sequence[Word], *, has_subcommand: bool) -> bool:
        """Whether the rule denies a command. With `has_subcommand` the first argument is not an option's value."""
        if not matches(self.program.rpartition("/")[2], program.rpartition("/")[2]):
            return False
        named = [word for word in self.words[1:] if word.startswith("-") and word != "-"]
        operands = [word for word in self.words[1:] if word not in named]
        while operands and operands[-1] == "*":  # a rule that denies `git push *` denies `git push` as well
            operands.pop()
        options = [single for option in named for single in _taken_apart(self.program, option)]
        if not all(any(_is_option(self.program, option, word) for word in arguments) for option in options):
            return False
        return _has_operands(operands, arguments, is_exact=has_subcommand)


@lru_cache(maxsize=1024)
def parse_rule(text: str) -> CommandRule:
    """Raises ValueError: an invalid rule is an error, never one that matches nothing."""
    if found := _SYNTAX.search(re.sub(r"'[^']*'|\"[^\"]*\"", "", text)):
        raise ValueError(
            f"is a rule for one command, and {found[0]!r} is shell syntax; write one rule for each command"
        )
    try:
        words = tuple(shlex.split(text, posix=True))
    except ValueError:
        raise ValueError("has a quotation without end; close it") from None
    if not words or not words[0]:
        raise ValueError("must begin with the name of a program")
    if words[0].startswith("-") or "=" in words[0]:
        raise ValueError(f"must begin with the name of a program, and {words[0]!r} is none")
    if "/" in words[0] and ("*" in words[0] or "/../" in f"{words[0]}/"):
        raise ValueError("names a program by its path, which must be plain: no `*` and no `..`")
    return CommandRule(text, words)


def rule_for(program: str, words: Sequence[Word]) -> str | None:
    """The rule that spells a program, or one with its sub-command, and these words; None where none can."""
    texts = [word.text for word in words if word.text is not None]
    rule = shlex.join([*program.split(), *texts])
    return rule if len(texts) == len(words) and rule.isprintable() else None


def plain_name(program: str) -> str:
    """The name of a program in the system's folders; other paths stay as they are."""
    found = _SYSTEM_PLACE.fullmatch(program)
    return found[1] if found else program


def _is_program(wanted: str, program: str) -> bool:
    """A name covers the program of that name in the system's folders, and no other."""
    if "/" in wanted:
        return wanted == program
    name = plain_name(program)
    return "/" not in name and matches(wanted, name)


def _surely(word: Word, pattern: str) -> bool:
    if pattern == "*":
        return not word.is_many
    return word.text is not None and matches(pattern, word.text)


def _taken_apart(program: str, option: str) -> list[str]:
    """`-rf` is `-r` and `-f`, however they are written."""
    if program in _LONG_WITH_ONE_DASH or _CLUSTER.fullmatch(option) is None:
        return [option]
    return [f"-{letter}" for letter in option[1:]]


def _is_option(program: str, option: str, word: Word) -> bool:
    if word.text is None:
        # It may turn into any option, unless it certainly begins otherwise.
        return word.may_be_option and (word.may_fall_apart or word.prefix in ("", "-") or possibly(word, option + "*"))
    same, name = _SAME.get(program, {}), word.text.partition("=")[0]
    if matches(option, word.text) or same.get(name, name) == same.get(option, option):
        return True
    if option.startswith("--"):
        # Most programs take any beginning of a long option that is clear to them.
        return len(name) > 3 and name.startswith("--") and option.startswith(name)
    if name.startswith("--") and len(name) > 3:
        return any(long.startswith(name) and short == option for long, short in same.items())
    if len(option) != 2 or program in _LONG_WITH_ONE_DASH or not _CLUSTER.match(name):
        return False
    return any(same.get(f"-{letter}", f"-{letter}") == option for letter in name[1:])


def _has_operands(wanted: list[str], arguments: Sequence[Word], *, is_exact: bool) -> bool:
    operands = [word for word in arguments if not word.prefix.startswith("-")]
    starts = [0] if is_exact else _feasible_starts(arguments)
    return any(_follow(wanted, operands, start) for start in starts)


def _feasible_starts(arguments: Sequence[Word]) -> list[int]:
    """Where the first operand may be: all before it may be values of options that stand right before them."""
    starts = [0]
    for before, word in zip((None, *arguments), arguments, strict=False):
        if word.prefix.startswith("-"):
            continue
        if before is None or not before.may_be_option:
            break
        starts.append(len(starts))
    return starts


def _follow(wanted: list[str], operands: Sequence[Word], start: int) -> bool:
    for number, pattern in enumerate(wanted, start):
        if number >= len(operands) or not possibly(operands[number], pattern):
            return number < len(operands) and operands[number].is_many and not operands[number].prefix
        if operands[number].is_many:
            return True  # whatever is wanted after it may be in it
    return True
