"""Whether the words of a known tool are known to be harmless: `tools` says which are."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from fumehood.policy.commands.clone_names import CLONING, cloned_folders
from fumehood.policy.commands.families import (
    FIX,
    UnsafeWord,
    find_unsafe_word_of_compiler,
    find_unsafe_word_of_family,
)
from fumehood.policy.commands.made_files import (
    EXTRACTING,
    contents,
    copied_names,
    is_recursive,
    last_part,
    made_files,
)
from fumehood.policy.commands.rules import rule_for
from fumehood.policy.commands.syntax import GLOB, Hole, Word, joined, known
from fumehood.policy.commands.tools import COMPILERS, TOOLS, ToolOptions
from fumehood.policy.commands.variables import names
from fumehood.policy.commands.write_targets import WriteTargets, is_hidden_or_remote

_MAKING_ARCHIVES = frozenset({"-c", "-r", "-u", "--create", "--append", "--update"})
# With fewer operands they make files in the folder where they run, unless one of these options is given.
_WRITING_HERE = {
    "csplit": (1_000_000, names("-f --prefix")),
    **dict.fromkeys(CLONING, (2, frozenset[str]())),
    "split": (2, frozenset[str]()),
    "git format-patch": (1_000_000, names("-o --output-directory --stdout")),
    "unzip": (1_000_000, names("-d -l -v -t -p -Z")),
}
_NOT_FOLLOWING = names("-a -d -P --archive --no-dereference")
_KEEPING_LINKS = {
    "cp": _NOT_FOLLOWING | names("-r -R --recursive"),
    "rsync": names("-a -l --archive --links"),
}
# What these make may be a folder, with all that is in it.
_MAKING_PLACES = CLONING | {"mv", "ln", "git mv", "git worktree"}
_COPYING = names("cp rsync")
_OPERANDS_OF_DD = names("if of bs ibs obs cbs count skip seek iseek oseek conv iflag oflag status")
_LISTS_OF_ZIP = names("-x -i --exclude")
_LIKE_OPTION = re.compile(r"-[^0-9]")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9@+_-]*(?:\.[0-9]+)*")
_FORMATS = frozenset({"--format", "--pretty", "--sort"})
_SIGNED = re.compile(r"%[-+ ]?G|signature")
_PRINTED = re.compile(r"(?:[^%@]|%\{\w+\})*")
# Settings of git that make it start nothing.
_HARMLESS_SETTINGS = (
    *(
        "user.name=",
        "user.email=",
        "color.",
        "advice.",
        "core.quotepath=",
        "init.defaultbranch=",
        "commit.gpgsign=false",
    ),
    *("core.autocrlf=", "log.date="),
)


def find_unsafe_word(
    name: str,
    arguments: Sequence[Word],
    targets: WriteTargets,
    granted: frozenset[str],
    passed: frozenset[int] = frozenset(),
) -> UnsafeWord | None:
    """`name` is a program, or a program and its sub-command.

    `granted` are options that rules spell, and `passed` the places of values that they spell.
    """
    if name in COMPILERS:
        return find_unsafe_word_of_compiler(name, arguments, targets, granted)
    tool = TOOLS.get(name)
    if tool is None:
        return find_unsafe_word_of_family(name, arguments, granted)
    return _ArgumentReader(name, tool, targets, granted, passed, list(arguments)).unsafe_word()


@dataclass(slots=True)
class _ArgumentReader:
    name: str
    tool: ToolOptions
    targets: WriteTargets
    granted: frozenset[str]
    passed: frozenset[int]
    words: list[Word]
    at: int = 0
    operands: list[Word] = field(default_factory=list[Word])
    given: dict[str, Word | None] = field(default_factory=dict[str, Word | None])
    """The options, with their values."""
    archives: list[Word] = field(default_factory=list[Word])
    """The archives that tar writes or reads."""
    folders: list[Word] = field(default_factory=list[Word])
    """The folders that tar reads from or writes into."""

    def unsafe_word(self) -> UnsafeWord | None:
        if found := self._old_style():
            return found
        while self.at < len(self.words):
            word = self.words[self.at]
            self.at += 1
            if word.text == "--" and "--" in self.tool.marks:
                return self._operand(word, f"{self.name} gives what follows -- to git, and may so start any program")
            if word.text == "--" or (word.text == "--end-of-options" and self.name.startswith("git ")):
                self.operands += self.words[self.at :]
                break
            if not word.may_be_option or word.text == "-" or ("*" in self.tool.marks and word.text is None):
                if "-" in self.tool.marks and word.may_begin_with("+"):
                    return self._operand(word, f"{self.name} may take {word.raw} for an option", "write ./ before it")
                self.operands.append(word)
            elif "*" not in self.tool.marks and (found := self._option(word)) and found.position not in self.passed:
                return found
        return self._of_operands()

    def _option(self, word: Word) -> UnsafeWord | None:
        if word.may_fall_apart:
            return self._unknown(word)
        text = word.text if word.text is not None else word.prefix
        if text.startswith("--"):
            option, has_value, value = text.partition("=")
            if word.text is None and not has_value:
                return self._unknown(word)
            return self._named(
                word, option, Word((value, *word.pieces[1:]), word.start, word.end, word.raw) if has_value else None
            )
        if len(text) < 2 or ("#" in self.tool.marks and word.text is not None and text[1:].isdigit()):
            return None if word.text is not None else self._unknown(word)
        if "." in self.tool.marks:
            return self._standing_alone(word)
        for number, letter in enumerate(text[1:], 2):
            option, rest = f"-{letter}", (text[number:], *word.pieces[1:])
            is_last = option in self.tool.takes_value | self.tool.optional
            attached = Word(tuple(piece for piece in rest if piece != ""), word.start, word.end, word.raw)
            if option in self.tool.takes_value and attached.pieces and attached.may_be_empty:
                why = f"{word.raw} may have no value, and would take the next word for it"
                return UnsafeWord(self.at - 1, option, why, f"put a space after {option}")
            if option in self.tool.written | self.tool.paths and attached.prefix.startswith("="):
                why = f"some programs take {word.raw} for {option} and the name without ="
                return UnsafeWord(self.at - 1, option, why, f"put a space after {option}")
            if found := self._named(word, option, attached if is_last and attached.pieces else None):
                return found
            if is_last or (option in self.granted and option not in self.tool.flags):
                return None  # what follows is a value
        return None if word.text is not None else self._unknown(word)

    def _standing_alone(self, word: Word) -> UnsafeWord | None:
        if word.text is None:
            return self._unknown(word)
        if len(word.text) == 2 or f"-{word.text}" in self.tool.flags:
            return self._named(word, word.text if len(word.text) == 2 else f"-{word.text}", None)
        why = f"{self.name} takes {word.raw} for one option"
        return UnsafeWord(self.at - 1, "", why, "write each option and each value as a word of its own")

    def _named(self, word: Word, option: str, value: Word | None) -> UnsafeWord | None:
        self.given.setdefault(option)
        tool = self.tool
        if self.name == "git" and option == "-c" and value is None and self._takes_harmless_setting():
            return None
        if self.name == "git stash" and option in ("-p", "--patch") and self._shows_stash("show"):
            return None
        if option in tool.spelled - self.granted:
            return self._not_harmless(option)
        if option in tool.attached:
            if value is None:
                why = f"{option} of {self.name} takes its value after = alone"
                return UnsafeWord(self.at - 1, option, why, f"write it as {option}=...")
            return self._of_value(option, value)
        if option not in tool.takes_value:
            is_known = option in tool.optional | self.granted or (option in tool.flags and value is None)
            if value is not None and is_known:
                return self._of_value(option, value)
            return None if is_known else self._not_harmless(option)
        if value is None:
            if self.at >= len(self.words):
                return None
            value = self.words[self.at]
            self.at += 1
            if _LIKE_OPTION.match(value.prefix):
                joint = "=" if option.startswith("--") else ""
                why = f"{value.raw} may be taken for an option instead of the value of {option}"
                return UnsafeWord(self.at - 1, option, why, f"write it as {option}{joint}{value.raw}")
            if self.name == "git stash" and self._shows_stash("show", "list"):
                return UnsafeWord(self.at - 1, option, f"{option} has no value here", f"leave {option} out")
            if value.is_many:
                return UnsafeWord(
                    self.at - 1, option, f"the value of {option} may become several words", "put quotes around it"
                )
        return self._of_value(option, value)

    def _shows_stash(self, *subcommands: str) -> bool:
        """Whether git only shows a stash; otherwise -p is interactive, with an editor, and -m has a value."""
        return bool(self.operands) and self.operands[0].text in subcommands

    def _takes_harmless_setting(self) -> bool:
        setting = self.words[self.at] if self.at < len(self.words) else known("")
        is_harmless = setting.text == "core.pager=cat" or setting.prefix.lower().startswith(_HARMLESS_SETTINGS)
        self.at += is_harmless
        return is_harmless and not setting.is_many

    def _of_value(self, option: str, value: Word) -> UnsafeWord | None:
        if self.name == "curl" and option in ("-w", "--write-out") and not _PRINTED.fullmatch(value.text or "%"):
            return UnsafeWord(
                self.at - 1, option, f"{option} of curl may write files", "use names in braces alone: %{http_code}"
            )
        if self.name.startswith("git ") and option in _FORMATS and _may_check_signatures(value):
            why = f"{option} may make git start the program that checks signatures"
            return UnsafeWord(self.at - 1, option, why, "write it out, without %G and signature")
        if self.name == "zip" and option in _LISTS_OF_ZIP and not self.operands:
            why = f"what follows {option} belongs to it, so that it cannot be told which file zip writes"
            return UnsafeWord(self.at - 1, option, why, f"put the archive's name before {option}")
        self.given[option] = value
        if self.name == "tar" and option in ("-f", "--file"):
            self.archives.append(value)
        if self.name == "tar" and option in ("-C", "--directory"):
            self.folders.append(value)
        if option in self.tool.written and (found := self.targets.problem(value)):
            return UnsafeWord(self.at - 1, option, *found)
        if option in self.tool.paths and is_hidden_or_remote(value):
            why = f"the value of {option} may be a hidden file, or have a colon, with which it starts a program"
            return UnsafeWord(self.at - 1, option, why, "write a plain name")
        return None

    def _old_style(self) -> UnsafeWord | None:
        """`tar czf name`: letters without a dash, whose values follow in their order."""
        first = self.words[0] if self.words else known("-")
        if self.name != "tar" or first.prefix.startswith("-"):
            return None
        self.at = 1
        if first.text is None or not first.text.isalpha():
            return self._unknown(first)
        for letter in first.text:
            if found := self._named(first, f"-{letter}", None):
                return found
        return None

    def _of_operands(self) -> UnsafeWord | None:
        marks, operands = self.tool.marks, self.operands
        if self.tool.required and not self.given.keys() & self.tool.required:
            options = " or ".join(sorted(self.tool.required))
            why = f"{self.name} without {options} starts a program, or writes a file that is not known"
            return UnsafeWord(0, "", why, f"add {options}")
        for mark in marks:
            if mark[0] == "<" and len(operands) > int(mark[1:]):
                return self._operand(operands[int(mark[1:])], f"{self.name} with so many words does something else")
            if mark[0] == "<" and (many := next((word for word in operands if word.is_many), None)):
                why = f"{many.raw} may become two words, with which {self.name} does something else"
                return self._operand(many, why, "write it out")
        if self.name == "git config" and any("." not in word.prefix for word in operands):
            return self._operand(operands[0], f"{operands[0].raw} is no name of a setting, and may start an editor")
        if "+" in marks:
            for word in operands:
                if not word.prefix.startswith("+"):
                    return self._operand(word, f"{self.name} sets the clock with this")
        if "@" in marks:
            for word in operands:
                if word.may_begin_with("@"):
                    return self._operand(word, f"{self.name} reads options from {word.raw}", "write ./ before it")
        if "=" in marks:
            for word in operands:
                if not _PLAIN_NAME.fullmatch(word.text or ""):
                    why = f"{word.raw} may be a file or a folder of code, which {self.name} would run"
                    return self._operand(word, why, "write the plain name of a package")
        if remote := next((mark[1:] for mark in marks if mark[0] == "!"), None):
            for word in operands:
                if remote in (word.text if word.text is not None else remote):
                    return self._operand(word, f"{word.raw} may make {self.name} start a program that fetches it")
        return self._of_written(marks, operands)

    def _of_written(self, marks: set[str], operands: list[Word]) -> UnsafeWord | None:
        if self.name == "dd" and (found := self._of_dd(operands)):
            return found
        for word in self.archives if self.given.keys() & _MAKING_ARCHIVES else ():
            if found := self.targets.problem(word):
                return self._operand(word, *found)
        for word in self.folders if self.given.keys() & EXTRACTING else ():
            if found := self.targets.problem_of_folder(word):
                return self._operand(word, *found)
        if self._writes_here() and (found := self.targets.problem_of_here()):
            return UnsafeWord(0, "", *found)
        if link := next(
            (word for word in operands if self._keeps_links() and self.targets.leads_elsewhere(word)), None
        ):
            why = f"{link.raw} may be a link, or hold links, by which a later command would write elsewhere"
            return self._operand(link, why, "copy without -a, -d and -P, and with -L")
        if self.name in CLONING and (found := self._of_cloned(operands)):
            return found
        if found := self._of_made(operands) or (self._of_copied(operands) if self.name in _COPYING else None):
            return found
        is_counted = bool(marks & {">second", ">prefix", ">first"})
        relevant = operands[:1] if ">first" in marks else operands
        if many := next((word for word in relevant if is_counted and word.is_many), None):
            why = f"{many.raw} may become several words or none, so that it cannot be told which {self.name} writes"
            return self._operand(many, why, "write it out")
        last = _last(operands)
        if gone := next(
            (word for word in operands if ">gone" in marks and self.targets.problem_of_removal(word)), None
        ):
            return self._operand(gone, *(self.targets.problem_of_removal(gone) or ("", "")))
        for word in self._written(marks, operands):
            is_kept = ">kept" in marks or (">moved" in marks and word not in last)
            final = _without_globs(word) if is_kept else _as_written(word, marks)
            targets = replace(self.targets, programs=frozenset()) if ">kept" in marks else self.targets
            if found := targets.problem(final, is_unpacked=">unpacked" in marks):
                return self._operand(word, *found)
        return None

    def _of_made(self, operands: list[Word]) -> UnsafeWord | None:
        """Files and folders that come to have the name of what a rule lets be run."""
        if not self.targets.programs:
            return None
        is_place = self.name in _MAKING_PLACES or is_recursive(self.name, self.given)
        check = self.targets.may_be_place if is_place else self.targets.may_be_program
        named = operands if is_place or self.name in _COPYING else ()
        if ">folders" in self.tool.marks:
            named = [last_part(word, is_folder=True) for word in operands]
        if word := next(filter(check, named), None):
            why = f"a rule lets a file of the name {word.raw} be run, or one in a folder of that name"
            return self._operand(word, why, "choose another name")
        if made := next(filter(self.targets.may_be_place, made_files(self.name, operands, self.given)), None):
            why = f"{self.name} makes {made.raw}, by which it may write what a rule lets be run"
            return UnsafeWord(max(len(self.words) - 1, 0), "", why, _spelled(self.name, self.words))
        return None

    def _of_cloned(self, operands: list[Word]) -> UnsafeWord | None:
        """The folder that git names after the URL is written as one that is named beside it."""
        for name in cloned_folders(operands[0]) if len(operands) == 1 else ():
            if found := self.targets.problem(name):
                return self._operand(operands[0], found[0], "write a plain name for the folder after it")
        return None

    def _of_copied(self, operands: list[Word]) -> UnsafeWord | None:
        """A copy in a folder has the name of what is copied."""
        targets = replace(self.targets, is_doubtful=False)
        for word, name in copied_names(operands, self.given):
            if found := targets.problem(_without_globs(name)):
                return self._operand(word, found[0], "choose another name, or use -T where the target is a file")
        target = next((value for option in ("-t", "--target-directory") if (value := self.given.get(option))), None)
        target = target or (operands[-1] if operands else None)
        if target and targets.is_own_folder(target):
            for word in contents(self.name, operands, self.given):
                why = f"there may be hidden files in {word.raw}, from which programs take orders"
                return self._operand(word, why, "copy into another folder, or name the files")
        return None

    def _written(self, marks: set[str], operands: list[Word]) -> list[Word]:
        if marks & {">all", ">folders", ">unpacked", ">kept", ">moved"}:
            return operands
        if ">last" in marks:
            return _last(operands) if len(operands) > 1 else []
        if ">first" in marks:
            return operands[:1]
        if marks & {">second", ">prefix"}:
            return operands[1:2]
        return []

    def _writes_here(self) -> bool:
        """Files whose names its words do not say."""
        if self.name == "tar":
            return bool(self.given.keys() & EXTRACTING) and not self.folders
        if self.name == "git init":
            return not self.operands
        least, elsewhere = _WRITING_HERE.get(self.name, (0, frozenset[str]()))
        return len(self.operands) < least and not self.given.keys() & elsewhere

    def _keeps_links(self) -> bool:
        if self.name == "cp" and self.given.keys() & {"-L", "--dereference"} and not self.given.keys() & _NOT_FOLLOWING:
            return False
        return bool(self.given.keys() & _KEEPING_LINKS.get(self.name, frozenset()))

    def _of_dd(self, operands: list[Word]) -> UnsafeWord | None:
        for word in operands:
            name, _, value = word.prefix.partition("=")
            if name not in _OPERANDS_OF_DD or word.prefix == name:
                return self._operand(word, f"{word.raw} may name a file that dd writes, or is not known")
            written = Word(joined([value, *word.pieces[1:]]), word.start, word.end, word.raw)
            if name == "of" and (found := self.targets.problem(written)):
                return self._operand(word, *found)
        return None

    def _operand(self, word: Word, why: str, fix: str = "") -> UnsafeWord:
        position = next((number for number, other in enumerate(self.words) if other is word), 0)
        return UnsafeWord(position, "", why, fix or _spelled(self.name, self.words[: position + 1]))

    def _unknown(self, word: Word) -> UnsafeWord:
        why = f"{word.raw} may turn out to be an option of {self.name}, and not all of those are harmless"
        if word.may_fall_apart:
            return UnsafeWord(
                self.at - 1, "", why, "put quotes around it, or set it to a plain word in the line itself"
            )
        before = "--end-of-options" if self.name.startswith("git ") else "-- or ./"
        return UnsafeWord(
            self.at - 1, "", why, f"write {before} before it, or set it to a plain word in the line itself"
        )

    def _not_harmless(self, option: str) -> UnsafeWord:
        return UnsafeWord(
            self.at - 1,
            option,
            f"{option} of {self.name} is not known to be harmless",
            FIX.format(f"{self.name} {option}"),
        )


def _spelled(name: str, words: Sequence[Word]) -> str:
    rule = rule_for(name, words)
    return FIX.format(rule) if rule else "write it out"


def _may_check_signatures(form: Word) -> bool:
    return form.text is None or _SIGNED.search(form.text) is not None


def _last(operands: list[Word]) -> list[Word]:
    """What may be the last one."""
    surely = next((number for number in range(1, len(operands)) if not operands[-number].may_vanish), 0)
    return operands[-surely:]


def _as_written(word: Word, marks: set[str]) -> Word:
    ending = "/" if ">folders" in marks else GLOB if ">prefix" in marks else ""
    return replace(word, pieces=joined((*word.pieces, ending)), raw=f"{word.raw}/") if ending else word


def _without_globs(word: Word) -> Word:
    """The word with globs replaced by a name, for options that keep a file's content: a glob may match git's files."""
    return replace(
        word, pieces=joined(["x" if isinstance(piece, Hole) and piece.is_glob else piece for piece in word.pieces])
    )
