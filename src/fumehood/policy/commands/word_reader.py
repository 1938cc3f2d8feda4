"""Reads words as bash does: quotes, escapes, expansions, with the commands inside of them.

Works on the bytes of the source, held as text of one character a byte, as bash does: it knows no other letters.
Whatever is rare, or means different things to different shells, is refused here: less that is understood is safer.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import NoReturn

from fumehood.policy.commands.decision import RefusalError
from fumehood.policy.commands.syntax import (
    BRACE,
    COUNT,
    GLOB,
    HOME,
    MANY,
    NUMBER,
    ONE,
    PLAIN,
    Arithmetic,
    Hole,
    Piece,
    ShellScript,
    Word,
    joined,
)

METACHARACTERS = " \t\n;&|()<>"
_PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*#?$!-]")
_SUBSCRIPT = re.compile(r"\[([@*]|-?[0-9]+|\$?[A-Za-z_][A-Za-z0-9_]*)\]")
_BARE = re.compile(r"\$(?![{('\"])")
_ENDING = re.compile(r"\.[A-Za-z0-9]+")
# 08 is no number to the shell, which then leaves out the rest of its line.
_DECIMAL = r"(?:0|[1-9][0-9]*)"
_OPERATOR = re.compile(rf":[-+?]|[-+?]|##?|%%?|//?|\^\^?|,,?|:(?={_DECIMAL}(?::{_DECIMAL})?\}})")
_ANSI_QUOTED = re.compile(r"\$'(?:[^'\\]|\\.)*'", re.DOTALL)
_ASSIGNED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=(?:[^'\"]*:)?")
# What it prints begins with a digit, and has no blanks.
_DATE = re.compile(r"\$\(date (?:-u )?(['\"]?)\+%[YmdHMSFsjyN](?:%?[YmdHMSFsjyN]|[_-](?!%_))*\1\)")
_NOT_UNDERSTOOD = "not understood"
_DEEPEST = 24


class WordReader:
    """A place in a source, up to `end`; `read_list` reads the commands of a substitution up to its closing mark."""

    def __init__(
        self, source: str, start: int, end: int, script: ShellScript, *, is_bash: bool, depth: int = 0
    ) -> None:
        self.source, self.script, self.is_bash = source, script, is_bash
        self.at: int = start
        self.end: int = end
        self.depth: int = depth
        self.read_list: Callable[[str], object]
        if depth > _DEEPEST:
            self.refuse(start, "commands are nested too deeply", "write it in several lines")

    def refuse(self, start: int, why: str, fix: str, end: int | None = None) -> NoReturn:
        raise RefusalError(start, max(self.at, start + 1) if end is None else end, why, fix)

    def line_at(self, place: int) -> tuple[int, int]:
        end = self.source.find("\n", place)
        return self.source.rfind("\n", 0, place) + 1, len(self.source) if end < 0 else end

    def bash_only(self, start: int, what: str) -> None:
        """Where another shell would read the same text in another way."""
        if not self.is_bash:
            self.refuse(start, f"{what} means something else to sh", "write it for bash, or leave it out")

    def peek(self, length: int = 1) -> str:
        return self.source[self.at : min(self.at + length, self.end)]

    def starts_with(self, text: str) -> bool:
        return self.peek(len(text)) == text

    def skip_blanks(self) -> None:
        """Skips blanks and comments, which begin where a word could."""
        while self.at < self.end:
            if self.peek() in " \t":
                self.at += 1
            elif self.starts_with("\\\n"):
                self._join_lines()
            elif self.peek() == "#":
                end = self.source.find("\n", self.at, self.end)
                self.at = self.end if end < 0 else end
            else:
                return

    def _join_lines(self) -> None:
        """Only between words: elsewhere the shell joins lines first, and may then read `$(` or another name."""
        if self.source[self.at - 1 : self.at] not in ("", " ", "\t", "\n"):
            self.refuse_joined()
        self.at += 2

    def refuse_joined(self) -> NoReturn:
        why = f"lines that are joined within a word or a mark: {_NOT_UNDERSTOOD}"
        self.refuse(self.at, why, "put a blank before the backslash, or write it in one line", self.at + 2)

    def word(self, *, is_value: bool = False) -> Word:
        """Up to the next metacharacter. The value of an assignment is neither split nor a pattern."""
        start, pieces, opened, is_braced = self.at, list[Piece](), -1, False
        is_bare, has_mark = False, False
        while self.at < self.end and (self.peek() not in METACHARACTERS or self._is_process_substitution()):
            char = self.peek()
            if char == "{" and opened < 0 and not is_value:
                # `$x{a,b}` is `$xa $xb`: braces are replaced before variables.
                opened, has_mark = len(pieces) - is_bare, is_bare
            elif char in ",." and opened >= 0:
                is_braced = True
            is_bare = _BARE.match(self.source, self.at, self.end) is not None
            has_mark = has_mark or (is_bare and opened >= 0)
            pieces += self._unquoted(is_value, start)
        if is_braced:
            self.bash_only(start, "a word with braces")
            # Braces make several words of one, so only what stands before them is sure.
            is_known = not has_mark and all(isinstance(piece, str) for piece in pieces[opened:])
            pieces = [*pieces[:opened], BRACE if is_known else MANY]
        found = tuple(_decoded(piece) for piece in joined(pieces))
        return Word(found, start, self.at, str(_decoded(self.source[start : self.at])))

    def ends_at(self, end: int, start: int) -> None:
        """For every part that has an end of its own: what was read is all of it, and no more."""
        if self.at != end:
            why = f"{self.peek() or 'the end'!r} closes nothing here: {_NOT_UNDERSTOOD}"
            self.refuse(min(self.at, start), why, "remove it, or close what is open")

    def _is_process_substitution(self) -> bool:
        return self.peek(2) in ("<(", ">(")

    def _unquoted(self, is_value: bool, word_start: int) -> list[Piece]:
        char, start = self.peek(), self.at
        is_many, is_first = not is_value, start == word_start
        match char:
            case "'":
                return [self._single_quoted()]
            case '"':
                return self._double_quoted()
            case "\\":
                if self.starts_with("\\\n"):
                    self.refuse_joined()
                self.at += 2
                if self.at > self.end:
                    self.refuse(start, f"it ends in a backslash: {_NOT_UNDERSTOOD}", "remove it")
                return [self.source[start + 1]]
            case "$":
                return self._dollar(is_many=is_many, is_quoted=False)
            case "`":
                return self._backquoted(Hole(is_many))
            case "<" | ">":
                self.bash_only(start, "process substitution")
                self.at += 2
                self._commands(")")
                return ["/dev/fd/", ONE]
            case "*" | "?":
                self.at += 1
                return [char] if is_value else [GLOB]
            case "[":
                self.at += 1
                is_alone = is_first and (self.peek() in METACHARACTERS or self.starts_with("["))
                return ["["] if is_value or is_alone else [GLOB]
            case "~" if is_first or self.source[start - 1] in "=:":
                return [self._tilde(word_start, is_value=is_value)]
            case _:
                self.at += 1
                return [char]

    def _tilde(self, word_start: int, *, is_value: bool) -> Piece:
        """The home folder. Other forms, and words such as x=~, differ between shells."""
        start = self.at
        self.at += 1
        is_alone = self.peek() in ("", "/", *METACHARACTERS) or (is_value and self.peek() == ":")
        if is_value or start == word_start:
            if not is_alone:
                self.refuse(start, f"a home folder other than the own one: {_NOT_UNDERSTOOD}", "write its path")
            return HOME
        if _ASSIGNED.fullmatch(self.source, word_start, start):
            self.refuse(start, f"shells differ in whether they replace this ~: {_NOT_UNDERSTOOD}", 'use "$HOME"')
        return "~"

    def _single_quoted(self) -> str:
        start = self.at
        end = self.source.find("'", self.at + 1, self.end)
        if end < 0:
            self.refuse(start, f"a quotation has no end: {_NOT_UNDERSTOOD}", "close it", self.end)
        self.at = end + 1
        return self.source[start + 1 : end]

    def _double_quoted(self) -> list[Piece]:
        start, pieces = self.at, list[Piece]([""])
        self.at += 1
        while self.at < self.end:
            if self.peek() == '"':
                self.at += 1
                return pieces
            pieces += self.quoted_piece()
        return self.refuse(start, f"a quotation has no end: {_NOT_UNDERSTOOD}", "close it", self.end)

    def quoted_piece(self) -> list[Piece]:
        """One piece of a text in which expansions happen and nothing else."""
        char = self.peek()
        if char == "$":
            return self._dollar(is_many=False, is_quoted=True)
        if char == "`":
            return self._backquoted(ONE)
        if char == "\\" and self.at + 1 < self.end:
            escaped = self.source[self.at + 1]
            if escaped == "\n":
                self.refuse_joined()
            self.at += 2
            return [escaped] if escaped in '$`"\\' else ["\\" + escaped]
        self.at += 1
        return [char]

    def _dollar(self, *, is_many: bool, is_quoted: bool) -> list[Piece]:
        start = self.at
        if self.starts_with("$(("):
            self.at += 3
            self._arithmetic(start)
            return [replace(NUMBER, is_never_empty=True)]
        if self.starts_with("$("):
            self.at += 2
            self._commands(")")
            is_date = _DATE.fullmatch(self.source, start, self.at) is not None
            return [replace(PLAIN, is_many=is_many) if is_date else Hole(is_many)]
        if self.starts_with("${"):
            return [self._braced(is_many, is_quoted=is_quoted)]
        if self.starts_with("$[") or (not is_quoted and self.starts_with('$"')):
            self.refuse(start, f"{self.peek(2)} is rarely used: {_NOT_UNDERSTOOD}", "write it plainly", start + 2)
        if not is_quoted and self.starts_with("$'"):
            return [self._ansi_quoted()]
        self.at += 1
        found = _PARAMETER.match(self.source, self.at, self.end)
        if found is None:
            return ["$"]
        if len(found[0]) > 1 and found[0].isdigit():
            self.refuse(start, f"shells differ in what ${found[0]} is: {_NOT_UNDERSTOOD}", f"use ${{{found[0]}}}")
        self.at = found.end()
        return [_value(found[0], is_many)]

    def _ansi_quoted(self) -> Hole:
        start = self.at
        self.bash_only(start, "$'...'")
        found = _ANSI_QUOTED.match(self.source, self.at, self.end)
        if found is None:
            self.refuse(start, f"a quotation has no end: {_NOT_UNDERSTOOD}", "close it", self.end)
        self.at = found.end()
        return ONE

    def _arithmetic(self, start: int) -> None:
        """Up to the two brackets that close it."""
        begin, depth = self.at, 0
        while self.at < self.end:
            char = self.peek()
            if char == ")" and depth == 0:
                break
            depth += (char == "(") - (char == ")")
            self.at += 1
        if not self.starts_with("))"):
            self.refuse(start, f"this is no arithmetic: {_NOT_UNDERSTOOD}", "use numbers, names and operators alone")
        self.at += 2
        self.script.arithmetic.append(Arithmetic(self.source[begin : self.at - 2], start, self.at))

    def arithmetic_command(self) -> None:
        start = self.at
        self.bash_only(start, "((...))")
        self.at += 2
        self._arithmetic(start)

    def _commands(self, closer: str) -> None:
        start = self.at
        self._deeper(start)
        self.read_list(closer)
        self.depth -= 1
        if not self.starts_with(closer):
            self.refuse(start, f"a substitution has no end: {_NOT_UNDERSTOOD}", "close it")
        self.at += 1

    def _backquoted(self, hole: Hole) -> list[Piece]:
        start = self.at
        end = self.source.find("`", start + 1, self.end)
        if end < 0 or "\\" in self.source[start:end]:
            self.refuse(start, f"commands in backquotes with escapes: {_NOT_UNDERSTOOD}", "use $(...)", self.end)
        inner, self.end = self.end, end
        self.at += 1
        self.depth += 1
        self.read_list("")
        self.depth -= 1
        self.ends_at(end, start)
        self.at, self.end = end + 1, inner
        return [hole]

    def _braced(self, is_many: bool, *, is_quoted: bool) -> Hole:
        """`${name}` and its common forms. Those that evaluate a value once more, or assign, are refused."""
        start = self.at
        self._deeper(start)
        self.at += 2
        is_length = self.peek() == "#" and self.peek(2) != "#}"
        self.at += is_length
        found = _PARAMETER.match(self.source, self.at, self.end)
        if found is None or (found[0] == "!" and self.source[found.end() : found.end() + 1] != "}"):
            self._refuse_expansion(start)
        self.at = found.end()
        value = _value(found[0], is_many)
        if subscript := _SUBSCRIPT.match(self.source, self.at, self.end):
            self.bash_only(start, "an array")
            self.at = subscript.end()
            value = MANY if subscript[1] == "@" else Hole(is_many)
            if subscript[1] not in "@*":
                self.script.arithmetic.append(Arithmetic(subscript[1], start, self.at))
        operator = None if is_length else _OPERATOR.match(self.source, self.at, self.end)
        if operator:
            self.at = operator.end()
            if operator[0][0] in "/^," or operator[0] == ":":
                self.bash_only(start, f"${{...{operator[0]}}}")
            self._operand(start, is_quoted=is_quoted)
            ending = self.source[operator.end() : self.at]
            is_trimmed = operator[0] == "%" and value.name is not None and _ENDING.fullmatch(ending)
            value = Hole(value.is_many, trimmed=(value.name or "", ending) if is_trimmed else None)
        if self.peek() != "}":
            self._refuse_expansion(start)
        self.at += 1
        self.depth -= 1
        return COUNT if is_length else value

    def _deeper(self, start: int) -> None:
        self.depth += 1
        if self.depth > _DEEPEST:
            self.refuse(start, "commands are nested too deeply", "write it in several lines")

    def _refuse_expansion(self, start: int) -> NoReturn:
        end = self.source.find("}", start, self.end)
        end = self.end if end < 0 else end + 1
        self.refuse(start, f"this expansion: {_NOT_UNDERSTOOD}", "write it plainly, with $name", end)

    def _operand(self, start: int, *, is_quoted: bool) -> None:
        while self.at < self.end and self.peek() != "}":
            char = self.peek()
            if char == "\n" or self._is_process_substitution() or (is_quoted and char in "'\""):
                self._refuse_expansion(start)
            if self.peek(2) in ("$'", '$"'):  # other quotations than those without the mark
                self._refuse_expansion(start)
            if char == "'":
                self._single_quoted()
            elif char == '"':
                self._double_quoted()
            else:
                self.quoted_piece()


def _value(name: str, is_many: bool) -> Hole:
    if name in "#?$":
        return COUNT
    if name == "!":
        return replace(PLAIN, is_number=True)
    return MANY if name == "@" else Hole(is_many, name)


def _decoded(piece: Piece) -> Piece:
    return piece.encode("latin-1").decode("utf-8", "replace") if isinstance(piece, str) else piece
