"""Reads simple commands: assignments, words, redirections, and the here-documents that these announce."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fumehood.policy.commands.decision import RefusalError
from fumehood.policy.commands.syntax import Assignment, Redirection, ShellScript, SimpleCommand, Word
from fumehood.policy.commands.word_reader import METACHARACTERS, WordReader

_REDIRECTION = re.compile(r"([0-9]?)(<<<|<<-|<<|<&|<>|<|>>|>&|>\||>|&>>|&>)")
_LONG_DESCRIPTOR = re.compile(r"[0-9]{2,}(?=[<>])")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\[(?:0|[1-9][0-9]{0,8})\])?(\+?)=")
_SUBSCRIPTED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\[")
_DELIMITER = re.compile(r"(['\"]?)([A-Za-z_][A-Za-z0-9_]*)\1|\\([A-Za-z_][A-Za-z0-9_]*)")
_DESCRIPTOR = re.compile(r"([0-9])?-?")
_NOT_UNDERSTOOD = "not understood"


@dataclass(frozen=True, slots=True)
class _Document:
    """A here-document that was announced; whatever stands there, its text follows the next line break, at `after`."""

    delimiter: str
    is_quoted: bool
    strips: bool
    after: int


class SimpleCommandReader(WordReader):
    def __init__(
        self, source: str, start: int, end: int, script: ShellScript, *, is_bash: bool, depth: int = 0
    ) -> None:
        super().__init__(source, start, end, script, is_bash=is_bash, depth=depth)
        self.pending: list[_Document] = []
        """Here-documents whose text follows the next line break."""
        self.nesting = 0

    def skip_lines(self, *, in_list: bool = False) -> None:
        self.skip_blanks()
        while self.peek() == "\n":
            self._newline(in_list=in_list)
            self.skip_blanks()

    def _newline(self, *, in_list: bool) -> None:
        """Shells differ in where the text of a here-document begins, unless its command ends at this line break."""
        if self.pending and not (in_list and all(document.after == self.at for document in self.pending)):
            why = f"a here-document whose command goes on in another line: {_NOT_UNDERSTOOD}"
            start, end = self.line_at(self.pending[0].after - 1)
            self.refuse(start, why, "end the command in the line in which << stands", end)
        self.at += 1
        for document in self.pending:
            self._here_document(document)
        self.pending = []

    def words_of_line(self) -> list[Word]:
        words: list[Word] = []
        self.skip_blanks()
        while self.at < self.end and (self.peek() not in METACHARACTERS or self.peek(2) in ("<(", ">(")):
            words.append(self.word())
            self.skip_blanks()
        return words

    def simple_command(self) -> SimpleCommand:
        simple, start = SimpleCommand(), self.at
        while self.at < self.end:
            self.skip_blanks()
            if self._redirection(simple):
                continue
            if self.at >= self.end or (self.peek() in METACHARACTERS and self.peek(2) not in ("<(", ">(")):
                break
            if not simple.words and (found := _ASSIGNMENT.match(self.source, self.at, self.end)):
                self._assignment(simple, found)
                continue
            if not simple.words and _SUBSCRIPTED.match(self.source, self.at, self.end):
                self.refuse(self.at, f"a subscript: {_NOT_UNDERSTOOD}", "use a plain number")
            simple.words.append(self.word())
            self._refuse_named_descriptor(simple.words[-1])
        if self.peek() == "(" and simple.words:
            self.refuse(start, f"a function or a pattern in brackets: {_NOT_UNDERSTOOD}", "write its commands out")
        if not (simple.words or simple.assignments or simple.redirections):
            self.refuse(start, f"there is no command here: {_NOT_UNDERSTOOD}", "remove it")
        self.script.commands.append(simple)
        return simple

    def close(self, mark: str, start: int) -> None:
        self.skip_blanks()
        if self.peek() != mark:
            self.refuse(start, f"this is not closed: {_NOT_UNDERSTOOD}", f"add {mark!r}")
        self.at += 1

    def _refuse_named_descriptor(self, word: Word) -> None:
        if self.peek() in ("<", ">") and re.fullmatch(r"\{.*\}", word.raw, re.DOTALL):
            self.refuse(word.start, f"{word.raw}{self.peek()} sets a variable: {_NOT_UNDERSTOOD}", "use a number")

    def _assignment(self, simple: SimpleCommand, found: re.Match[str]) -> None:
        start = self.at
        self.at = found.end()
        values: list[Word] = []
        if found[2] or found[3]:
            self.bash_only(start, found[0])
        is_array = self.peek() == "("
        if is_array:
            self.bash_only(start, "an array")
            self.at += 1
            self.skip_lines()
            while self.at < self.end and self.peek() != ")":
                before = len(values)
                values += self.words_of_line()
                if any(word.raw.startswith("[") or "]=" in word.raw or "]+=" in word.raw for word in values[before:]):
                    self.refuse(start, f"a subscript can run commands: {_NOT_UNDERSTOOD}", "list the values alone")
                self.skip_lines()
                if len(values) == before and self.peek() != ")":
                    self.refuse(start, f"this array is unusual: {_NOT_UNDERSTOOD}", "list plain values")
            self.close(")", start)
            if self.peek() not in ("", *METACHARACTERS):
                self.refuse(start, f"an array with text behind it: {_NOT_UNDERSTOOD}", "put a space between them")
        else:
            values.append(self.word(is_value=True))
        given = () if found[3] else tuple(values)
        simple.assignments.append(Assignment(found[1], given, start, self.at, is_whole=not found[2]))

    def redirections_after(self) -> None:
        simple = SimpleCommand()
        self.skip_blanks()
        while self._redirection(simple):
            self.skip_blanks()
        if simple.redirections:
            self.script.commands.append(simple)

    def _redirection(self, simple: SimpleCommand) -> bool:
        if found := _LONG_DESCRIPTOR.match(self.source, self.at, self.end):
            why = f"shells differ in whether {found[0]} is a word here: {_NOT_UNDERSTOOD}"
            self.refuse(self.at, why, "put a space after it, or use a descriptor of one digit", found.end() + 1)
        found = _REDIRECTION.match(self.source, self.at, self.end)
        if found is None or (self.peek(2) in ("<(", ">(")):
            return False
        start, operator = self.at, found[2]
        descriptor = int(found[1] or (0 if operator[0] == "<" else 1))
        if operator in ("<<<", "&>", "&>>"):
            self.bash_only(start, operator)
        self.at = found.end()
        self.skip_blanks()
        if operator in ("<<", "<<-"):
            self._here_delimiter(start, strips=operator == "<<-")
            simple.redirections.append(Redirection(operator, descriptor, None, start, self.at))
            return True
        target = self.word()
        if not target.raw:
            self.refuse(start, f"a redirection leads nowhere: {_NOT_UNDERSTOOD}", "name a file")
        copy = _DESCRIPTOR.fullmatch(target.raw) if operator in (">&", "<&") else None
        if operator == "<&" and not copy:
            self.refuse(start, f"a descriptor that is not a digit: {_NOT_UNDERSTOOD}", "use a digit")
        if operator == ">&" and not copy:
            self.bash_only(start, ">& with a file")
        copied = int(copy[1]) if copy and copy[1] else None
        kept = None if copy else target
        simple.redirections.append(Redirection(operator, descriptor, kept, start, self.at, copied))
        return True

    def _here_delimiter(self, start: int, *, strips: bool) -> None:
        found = _DELIMITER.match(self.source, self.at, self.end)
        if found is None or self.source[found.end() : found.end() + 1] not in ("", *METACHARACTERS):
            self.refuse(start, f"the end of a here-document has an unusual name: {_NOT_UNDERSTOOD}", "use EOF or 'EOF'")
        self.at = found.end()
        after, is_quoted = self.source.find("\n", self.at, self.end), bool(found[1] or found[3])
        self.pending.append(_Document(found[2] or found[3], is_quoted, strips, after))

    def _here_document(self, document: _Document) -> None:
        start, delimiter = self.at, document.delimiter
        while True:
            if self.at >= self.end:
                self.refuse(start, f"the here-document has no line {delimiter!r}: {_NOT_UNDERSTOOD}", "close it", start)
            stop = self.source.find("\n", self.at, self.end)
            stop = self.end if stop < 0 else stop
            line = self.source[self.at : stop]
            line = line.lstrip("\t") if document.strips else line
            if line == delimiter:
                break
            if line.startswith(delimiter) and ")" in line:
                # Within $( ), bash takes this for the end, and reads on after it.
                self.refuse(self.at, f"a line that may end the here-document: {_NOT_UNDERSTOOD}", "use another name")
            self.at = stop + 1
        if not document.is_quoted:
            self._here_text(start, min(self.at, self.end), strips=document.strips)
        self.at = stop

    def _here_text(self, start: int, end: int, *, strips: bool) -> None:
        if "\\\n" in self.source[start:end]:
            raise RefusalError(start, end, f"a here-document with joined lines: {_NOT_UNDERSTOOD}", "write whole lines")
        text = type(self)(self.source, start, end, self.script, is_bash=self.is_bash, depth=self.depth + 1)
        text.nesting = 1
        while text.at < text.end:
            begin = text.at
            text.quoted_piece()
            if strips and "\n\t" in self.source[begin : text.at] and self.source[begin] in "$`":
                # The tabs are taken away before the shell reads it, which may end an inner here-document.
                why = f"a substitution over several lines in <<-: {_NOT_UNDERSTOOD}"
                raise RefusalError(begin, text.at, why, "write it in one line, or use <<")
        text.ends_at(end, start)
