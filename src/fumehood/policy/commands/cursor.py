"""Reads words as bash does: quotes, escapes, expansions, with the commands inside of them.

Works on the bytes of the source, held as text of one character a byte, so that places in it are those of tree-sitter.
Whatever is rare, or means different things to different shells, is refused here: less that is understood is safer.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NoReturn

from fumehood.policy.commands.script import Arithmetic, Assignment, Script
from fumehood.policy.commands.verdict import RefusedError
from fumehood.policy.commands.words import Hole, Piece, Word, joined

METACHARACTERS = " \t\n;&|()<>"
_PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*#?$!-]")
_SUBSCRIPT = re.compile(r"\[([@*]|[0-9]+|-[0-9]+|\$?[A-Za-z_][A-Za-z0-9_]*)\]")
_OPERATOR = re.compile(r":[-=+?]|[-=+?]|##?|%%?|//?|\^\^?|,,?|:")
_ARITHMETIC = re.compile(r"(?:[A-Za-z0-9_\s+\-*/%<>=!&|^~?:,#;()]|\$(?=[A-Za-z_#?]))*")
_PLAIN = "it cannot be judged"
_DEEPEST = 24


class Cursor:
    """A place in a source, up to `end`; `read_list` reads the commands of a substitution up to its closing mark."""

    def __init__(self, source: str, start: int, end: int, script: Script, *, is_bash: bool, depth: int = 0) -> None:
        self.source, self.script, self.is_bash = source, script, is_bash
        self.at: int = start
        self.end: int = end
        self.depth: int = depth
        self.read_list: Callable[[str], object]
        if depth > _DEEPEST:
            self.refuse(start, "commands are nested too deeply", "write it in several lines")

    def refuse(self, start: int, why: str, remedy: str, end: int | None = None) -> NoReturn:
        raise RefusedError(start, max(self.at, start + 1) if end is None else end, why, remedy)

    def bash_only(self, start: int, what: str) -> None:
        """Where another shell would read the same text in another way."""
        if not self.is_bash:
            self.refuse(start, f"{what} means something else to sh", "write it for bash, or leave it out")

    def peek(self, length: int = 1) -> str:
        return self.source[self.at : min(self.at + length, self.end)]

    def starts_with(self, text: str) -> bool:
        return self.peek(len(text)) == text

    def skip_blanks(self) -> None:
        """And comments, which begin where a word could."""
        while self.at < self.end:
            if self.peek() in " \t":
                self.at += 1
            elif self.starts_with("\\\n"):
                self.at += 2
            elif self.peek() == "#":
                end = self.source.find("\n", self.at, self.end)
                self.at = self.end if end < 0 else end
            else:
                return

    def word(self, *, is_value: bool = False) -> Word:
        """Up to the next metacharacter. The value of an assignment is neither split nor a pattern."""
        start, pieces, opened, is_braced = self.at, list[Piece](), -1, False
        while self.at < self.end and (self.peek() not in METACHARACTERS or self._is_process_substitution()):
            char = self.peek()
            if char == "{" and opened < 0 and not is_value:
                opened = len(pieces)
            elif char in ",." and opened >= 0:
                is_braced = True
            pieces += self._unquoted(is_value, is_first=self.at == start)
        if is_braced:
            # Braces make several words of one, so only what stands before them is sure.
            pieces = [*pieces[:opened], Hole.MANY]
        found = tuple(_decoded(piece) for piece in joined(pieces))
        return Word(found, start, self.at, str(_decoded(self.source[start : self.at])))

    def _is_process_substitution(self) -> bool:
        return self.peek(2) in ("<(", ">(")

    def _unquoted(self, is_value: bool, *, is_first: bool) -> list[Piece]:
        char, start = self.peek(), self.at
        many = Hole.ONE if is_value else Hole.MANY
        match char:
            case "'":
                return [self._single_quoted()]
            case '"':
                return self._double_quoted()
            case "\\":
                self.at += 2
                if self.at > self.end:
                    self.refuse(start, f"it ends in a backslash, so {_PLAIN}", "remove it")
                escaped = self.source[start + 1]
                return [] if escaped == "\n" else [escaped]
            case "$":
                return self._dollar(many, is_quoted=False)
            case "`":
                return self._backquoted(many)
            case "<" | ">":
                self.bash_only(start, "process substitution")
                self.at += 2
                self._commands(")")
                return [Hole.ONE]
            case "*" | "?":
                self.at += 1
                return [char] if is_value else [Hole.MANY]
            case "[":
                self.at += 1
                return [Hole.MANY] if not is_value and self._closes_bracket() else ["["]
            case "~" if is_first or (is_value and self.source[start - 1] in "=:"):
                self.at += 1
                return ["~", Hole.ONE]
            case _:
                self.at += 1
                return [char]

    def _closes_bracket(self) -> bool:
        found = re.compile(r"[^\s;&|()<>]*\]").match(self.source, self.at, self.end)
        return found is not None

    def _single_quoted(self) -> str:
        start = self.at
        end = self.source.find("'", self.at + 1, self.end)
        if end < 0:
            self.refuse(start, f"a quotation has no end, so {_PLAIN}", "close it", self.end)
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
        return self.refuse(start, f"a quotation has no end, so {_PLAIN}", "close it", self.end)

    def quoted_piece(self) -> list[Piece]:
        """One piece of a text in which expansions happen and nothing else."""
        char = self.peek()
        if char == "$":
            return self._dollar(Hole.ONE, is_quoted=True)
        if char == "`":
            return self._backquoted(Hole.ONE)
        if char == "\\" and self.at + 1 < self.end:
            escaped = self.source[self.at + 1]
            self.at += 2
            if escaped == "\n":
                return []
            return [escaped] if escaped in '$`"\\' else ["\\" + escaped]
        self.at += 1
        return [char]

    def _dollar(self, hole: Hole, *, is_quoted: bool) -> list[Piece]:
        start = self.at
        if self.starts_with("$(("):
            self.at += 3
            self._arithmetic(start)
            return [hole]
        if self.starts_with("$("):
            self.at += 2
            self._commands(")")
            return [hole]
        if self.starts_with("${"):
            return [self._braced(hole, is_quoted=is_quoted)]
        if self.starts_with("$[") or (not is_quoted and self.starts_with('$"')):
            self.refuse(start, f"{self.peek(2)} is rarely used, and {_PLAIN}", "write it in another way", start + 2)
        if not is_quoted and self.starts_with("$'"):
            return [self._ansi_quoted()]
        self.at += 1
        found = _PARAMETER.match(self.source, self.at, self.end)
        if found is None:
            return ["$"]
        # `$10` is `$1` and a zero.
        self.at = found.end() if not found[0].isdigit() else found.start() + 1
        return [Hole.MANY if found[0] == "@" else hole]

    def _ansi_quoted(self) -> Hole:
        start = self.at
        self.bash_only(start, "$'...'")
        found = re.compile(r"\$'(?:[^'\\]|\\.)*'", re.DOTALL).match(self.source, self.at, self.end)
        if found is None:
            self.refuse(start, f"a quotation has no end, so {_PLAIN}", "close it", self.end)
        self.at = found.end()
        return Hole.ONE

    def _arithmetic(self, start: int) -> None:
        """Up to the two brackets that close it."""
        begin, depth = self.at, 0
        while self.at < self.end:
            char = self.peek()
            if char == ")" and depth == 0:
                break
            depth += (char == "(") - (char == ")")
            self.at += 1
        text = self.source[begin : self.at]
        if not self.starts_with("))") or _ARITHMETIC.fullmatch(text) is None:
            self.refuse(start, f"this is not plain arithmetic, so {_PLAIN}", "use numbers, names and operators alone")
        self.script.arithmetic.append(Arithmetic(text, start, self.at + 2))
        self.at += 2

    def arithmetic_command(self) -> None:
        start = self.at
        self.bash_only(start, "((...))")
        self.at += 2
        self._arithmetic(start)

    def _commands(self, closer: str) -> None:
        start = self.at
        self.depth += 1
        if self.depth > _DEEPEST:
            self.refuse(start, "commands are nested too deeply", "write it in several lines")
        self.read_list(closer)
        self.depth -= 1
        if not self.starts_with(closer):
            self.refuse(start, f"a substitution has no end, so {_PLAIN}", "close it")
        self.at += 1

    def _backquoted(self, hole: Hole) -> list[Piece]:
        start = self.at
        end = self.source.find("`", start + 1, self.end)
        if end < 0 or "\\" in self.source[start:end]:
            self.refuse(start, f"commands in backquotes with escapes: {_PLAIN}", "use $(...)", self.end)
        inner, self.end = self.end, end
        self.at += 1
        self.depth += 1
        self.read_list("")
        self.depth -= 1
        self.at, self.end = end + 1, inner
        return [hole]

    def _braced(self, hole: Hole, *, is_quoted: bool) -> Hole:
        """`${name}` and its common forms. Those that evaluate a value once more are refused."""
        start = self.at
        self.depth += 1
        if self.depth > _DEEPEST:
            self.refuse(start, "expansions are nested too deeply", "write it in several lines")
        self.at += 2
        if self.peek() == "#" and self.peek(2) != "#}":
            self.at += 1
        found = _PARAMETER.match(self.source, self.at, self.end)
        if found is None or (found[0] == "!" and self.source[found.end() : found.end() + 1] != "}"):
            self._refuse_expansion(start)
        self.at = found.end()
        is_list = found[0] in ("@", "*")
        subscript = _SUBSCRIPT.match(self.source, self.at, self.end)
        if subscript:
            self.bash_only(start, "an array")
            self.at = subscript.end()
            is_list = subscript[1] in ("@", "*")
            if not is_list:
                self.script.arithmetic.append(Arithmetic(subscript[1], start, self.at))
        operator = _OPERATOR.match(self.source, self.at, self.end)
        if operator:
            self.at = operator.end()
            self._operand(start, operator[0], is_quoted=is_quoted)
            if operator[0] in (":=", "="):
                self.script.assigned.append(Assignment(found[0], (), start, self.at))
        if self.peek() != "}":
            self._refuse_expansion(start)
        self.at += 1
        self.depth -= 1
        return Hole.MANY if is_list else hole

    def _refuse_expansion(self, start: int) -> NoReturn:
        end = self.source.find("}", start, self.end)
        why = f"this expansion can evaluate text as code, or is rarely used: {_PLAIN}"
        self.refuse(start, why, "use a plain $name", self.end if end < 0 else end + 1)

    def _operand(self, start: int, operator: str, *, is_quoted: bool) -> None:
        begin = self.at
        while self.at < self.end and self.peek() != "}":
            char = self.peek()
            if char == "\n" or self._is_process_substitution() or (is_quoted and char in "'\""):
                self._refuse_expansion(start)
            if char == "'":
                self._single_quoted()
            elif char == '"':
                self._double_quoted()
            else:
                self.quoted_piece()
        if operator == ":":
            text = self.source[begin : self.at]
            if _ARITHMETIC.fullmatch(text) is None:
                self._refuse_expansion(start)
            self.script.arithmetic.append(Arithmetic(text, start, self.at))


def _decoded(piece: Piece) -> Piece:
    return piece.encode("latin-1").decode("utf-8", "replace") if isinstance(piece, str) else piece
