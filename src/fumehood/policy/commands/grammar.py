"""Reads the structure of a script: lists, pipelines, compound commands, here-documents.

A reader of our own, which knows a small part of the language and refuses the rest: no functions, no `select`, no
`coproc`, no subscripts but numbers. The tests compare what it lets through with what bash then does.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from fumehood.policy.commands.cursor import METACHARACTERS, Cursor
from fumehood.policy.commands.script import Arithmetic, Assignment, Redirection, Script, Simple
from fumehood.policy.commands.variables import names
from fumehood.policy.commands.verdict import RefusedError
from fumehood.policy.commands.words import Word

_REDIRECTION = re.compile(r"([0-9]?)(<<<|<<-|<<|<&|<>|<|>>|>&|>\||>|&>>|&>)")
_LONG_DESCRIPTOR = re.compile(r"[0-9]{2,}(?=[<>])")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:\[[0-9]+\])?(\+?)=")
_SUBSCRIPTED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\[")
_DELIMITER = re.compile(r"(['\"]?)([A-Za-z_][A-Za-z0-9_]*)\1|\\([A-Za-z_][A-Za-z0-9_]*)")
_DESCRIPTOR = re.compile(r"([0-9])?-?")
_SEPARATORS = re.compile(r"&&|\|\||;;&|;;|;&|\|&|[;&|\n]")
_CLOSERS = frozenset({"then", "else", "elif", "fi", "do", "done", "esac", "}"})
_OPENERS = frozenset({"if", "while", "until", "for", "case", "{", "[["})
_REFUSED = {"coproc": "leave it out", "select": "use for", "function": "write its commands out", "in": "remove it"}
_RESERVED = re.compile(rf"[^{re.escape(METACHARACTERS)}]+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CASE_END = re.compile(r";;&|;;|;&")
_COMPARING_NUMBERS = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge"})
_TESTS = names("-a -b -c -d -e -f -g -h -k -n -p -r -s -t -u -w -x -z -G -L -N -O -S")
_COMPARISONS = frozenset({"=", "==", "!=", "=~", "-nt", "-ot", "-ef", *_COMPARING_NUMBERS})
_DEEPEST = 40
_LONGEST_RESERVED = 9  # a letter more than `function`: a word that is longer is none
_NOT_UNDERSTOOD = "not understood"


def read_script(source: str, *, is_bash: bool) -> Script:
    """Raises RefusedError for whatever is not certain."""
    script = Script(is_bash)
    grammar = Grammar(source, 0, len(source), script, is_bash=is_bash)
    grammar.statements("")
    if grammar.at < grammar.end:
        grammar.refuse(grammar.at, f"{grammar.peek()!r} closes nothing here: {_NOT_UNDERSTOOD}", "remove it")
    return script


@dataclass(frozen=True, slots=True)
class _Document:
    """A here-document that was announced; whatever stands there, its text follows the next line break, at `after`."""

    delimiter: str
    is_quoted: bool
    strips: bool
    after: int


class Grammar(Cursor):
    def __init__(self, source: str, start: int, end: int, script: Script, *, is_bash: bool, depth: int = 0) -> None:
        super().__init__(source, start, end, script, is_bash=is_bash, depth=depth)
        self.read_list = self.statements
        self._pending: list[_Document] = []
        self._inner = 0

    def statements(self, closer: str) -> str:
        """Up to the closing mark or reserved word, which is left where it stands and returned."""
        waiting, self._pending = self._pending, []
        self._inner += 1
        if self._inner > _DEEPEST:
            self.refuse(self.at, "commands are nested too deeply", "write it in several lines")
        while True:
            self._skip_lines(in_list=True)
            if self.at >= self.end or self.peek() == ")" or self.peek(2) == ";;" or self.peek(2) == ";&":
                break
            if self._reserved() in _CLOSERS:
                break
            self._and_or()
        if self._pending:
            self.refuse(self.at, f"a here-document has no end: {_NOT_UNDERSTOOD}", "close it")
        self._pending = waiting
        self._inner -= 1
        return self._reserved()

    def _skip_lines(self, *, in_list: bool = False) -> None:
        self.skip_blanks()
        while self.peek() == "\n":
            self._newline(in_list=in_list)
            self.skip_blanks()

    def _newline(self, *, in_list: bool) -> None:
        """Shells differ in where the text of a here-document begins, unless its command ends at this line break."""
        if self._pending and not (in_list and all(document.after == self.at for document in self._pending)):
            why = f"a here-document whose command goes on in another line: {_NOT_UNDERSTOOD}"
            start, end = self.line_at(self._pending[0].after - 1)
            self.refuse(start, why, "end the command in the line in which << stands", end)
        self.at += 1
        for document in self._pending:
            self._here_document(document)
        self._pending = []

    def _and_or(self) -> None:
        """Pipelines joined by && and ||, and the mark that ends them."""
        first, is_alone = self._pipeline(), True
        while True:
            self.skip_blanks()
            if self.at >= self.end or self.peek() == ")":
                break
            found = _SEPARATORS.match(self.source, self.at, self.end)
            if found is None:
                self.refuse(self.at, f"a command cannot begin here: {_NOT_UNDERSTOOD}", "put a ; before it")
            if found[0] in (";;", ";&", ";;&"):
                break
            is_alone = is_alone and found[0] in (";", "\n")
            self.at = found.end()
            if found[0] in ("&&", "||", "|", "|&"):
                if found[0] == "|&":
                    self.bash_only(found.start(), "|&")
                self._skip_lines(in_list=True)
                self._pipeline(is_first=found[0] in ("&&", "||"))
                continue
            if found[0] == "\n":
                self.at -= 1
            break
        if first and is_alone and self._inner == 1:
            self._settle(first)

    def _settle(self, simple: Simple) -> None:
        """A command of the script itself, which runs whatever happens: what stands after it finds its values."""
        if not simple.words:
            self.script.settled += [(assignment.name, self.at, math.inf) for assignment in simple.assignments]
        elif simple.words[0].raw in ("export", "readonly"):
            named = (word.prefix.partition("=") for word in simple.words[1:])
            self.script.settled += [(name, self.at, math.inf) for name, is_set, _ in named if is_set]

    def _pipeline(self, *, is_first: bool = True) -> Simple | None:
        """Returns the command if it is a simple one. `time` after | is a program, and no reserved word."""
        self.skip_blanks()
        while (word := self._reserved()) == "!" or (word == "time" and is_first):
            if word == "time":
                self.bash_only(self.at, "time")
            self.at += len(word)
            self.skip_blanks()
            if word == "time" and self._reserved() == "-p":
                self.at += 2
                self.skip_blanks()
        return self._command()

    def _reserved(self) -> str:
        """The next word, if it is written so that it may be a reserved one."""
        found = _RESERVED.match(self.source, self.at, min(self.end, self.at + _LONGEST_RESERVED))
        return found[0] if found else ""

    def _expect(self, word: str, start: int) -> None:
        self.skip_blanks()
        if self._reserved() != word:
            self.refuse(start, f"{word!r} is missing after this: {_NOT_UNDERSTOOD}", f"add {word!r}")
        self.at += len(word)

    def _command(self) -> Simple | None:
        start, word = self.at, self._reserved()
        if self.starts_with("(("):
            self.arithmetic_command()
        elif self.peek() == "(":
            self.at += 1
            self.statements(")")
            self._close(")", start)
        elif word in _CLOSERS or word in _REFUSED:
            remedy = _REFUSED.get(word, "remove it")
            self.refuse(start, f"{word!r} does not belong here: {_NOT_UNDERSTOOD}", remedy, start + len(word))
        elif word in _OPENERS:
            self.at += len(word)
            self._compound(word, start)
        else:
            return self._simple()
        self._redirections_after()
        return None

    def _compound(self, word: str, start: int) -> None:
        match word:
            case "if":
                self._if(start)
            case "while" | "until":
                self.statements("")
                self._body(start)
            case "for":
                self._for(start)
            case "case":
                self._case(start)
            case "{":
                self.statements("}")
                self._expect("}", start)
            case _:
                self._test(start)

    def _close(self, mark: str, start: int) -> None:
        self.skip_blanks()
        if self.peek() != mark:
            self.refuse(start, f"this is not closed: {_NOT_UNDERSTOOD}", f"add {mark!r}")
        self.at += 1

    def _if(self, start: int) -> None:
        self.statements("then")
        self._expect("then", start)
        word = self.statements("fi")
        if word == "elif":
            self.at += len(word)
            self._if(start)
            return
        if word == "else":
            self.at += len(word)
            self.statements("fi")
        self._expect("fi", start)

    def _body(self, start: int) -> None:
        self._skip_lines()
        self._expect("do", start)
        self.statements("done")
        self._expect("done", start)

    def _for(self, start: int) -> None:
        name_of_loop, begin = "", self.at
        self.skip_blanks()
        if self.starts_with("(("):
            self.arithmetic_command()
        else:
            name = self.word()
            self._skip_lines()
            if _VARIABLE.fullmatch(name.raw) is None or self._reserved() != "in":
                self.refuse(start, f"this loop: {_NOT_UNDERSTOOD}", "write it as: for name in words; do ...; done")
            self.at += 2
            self.script.assigned.append(Assignment(name.raw, tuple(self._words_of_line()), start, self.at))
            name_of_loop, begin = name.raw, self.at
        self.skip_blanks()
        if self.peek() == ";":
            self.at += 1
        self._body(start)
        if name_of_loop:
            self.script.settled.append((name_of_loop, begin, self.at))

    def _words_of_line(self) -> list[Word]:
        words: list[Word] = []
        self.skip_blanks()
        while self.at < self.end and (self.peek() not in METACHARACTERS or self.peek(2) in ("<(", ">(")):
            words.append(self.word())
            self.skip_blanks()
        return words

    def _case(self, start: int) -> None:
        self.skip_blanks()
        self.word()
        self._skip_lines()
        self._expect("in", start)
        self._skip_lines()
        while self._reserved() != "esac":
            if self.peek() == "(":
                self.at += 1
            self._patterns(start)
            self.statements("esac")
            found = _CASE_END.match(self.source, self.at, self.end)
            if found:
                if found[0] != ";;":
                    self.bash_only(found.start(), found[0])
                self.at = found.end()
            self._skip_lines()
            if not found and self._reserved() != "esac":
                self.refuse(start, f"'esac' is missing after this: {_NOT_UNDERSTOOD}", "add 'esac'")
        self.at += len("esac")

    def _patterns(self, start: int) -> None:
        while True:
            self.skip_blanks()
            before = self.at
            self.word()
            self.skip_blanks()
            mark = self.peek()
            self.at += 1
            if before == self.at - 1 or mark not in "|)" or not mark:
                self.refuse(start, f"a pattern of this is unusual: {_NOT_UNDERSTOOD}", "write it with quotes")
            if mark == ")":
                return

    def _test(self, start: int) -> None:
        """`[[ ... ]]` runs nothing but substitutions, and evaluates numbers."""
        self.bash_only(start, "[[")
        words: list[Word] = []
        is_open = True
        while is_open:
            self.skip_blanks()
            mark = self.peek(2) if self.peek(2) in ("&&", "||") else self.peek()
            if mark and mark in ("<", ">", "(", ")", "!", "&&", "||") and self.peek(2) not in ("<(", ">("):
                self.at += len(mark)
                words.append(Word((mark,), self.at, self.at, mark))
            elif mark == "|" and words and words[-1].raw != "|":
                self.at += 1  # in a regular expression
            elif not mark or (mark in METACHARACTERS and self.peek(2) not in ("<(", ">(")):
                self.refuse(start, f"'[[' has no ']]' on its line: {_NOT_UNDERSTOOD}", "write it plainly")
            else:
                words.append(self.word())
                is_open = words[-1].raw != "]]"
        self._check_test(words[:-1], start)

    def _check_test(self, words: list[Word], start: int) -> None:
        for number, word in enumerate(words):
            if word.raw.startswith("-") and len(word.raw) > 1 and word.raw not in _TESTS | _COMPARISONS:
                self.refuse(start, f"{word.raw} in [[: {_NOT_UNDERSTOOD}", "use -n, -z, -f and the like")
            if word.raw in _COMPARING_NUMBERS:
                for operand in (*words[max(0, number - 1) : number], *words[number + 1 : number + 2]):
                    text = operand.raw.strip('"')
                    self.script.arithmetic.append(Arithmetic(text, operand.start, operand.end))

    def _simple(self) -> Simple:
        simple, start = Simple(), self.at
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

    def _refuse_named_descriptor(self, word: Word) -> None:
        if self.peek() in ("<", ">") and re.fullmatch(r"\{.*\}", word.raw, re.DOTALL):
            self.refuse(word.start, f"{word.raw}{self.peek()} sets a variable: {_NOT_UNDERSTOOD}", "use a number")

    def _assignment(self, simple: Simple, found: re.Match[str]) -> None:
        start = self.at
        self.at = found.end()
        values: list[Word] = []
        if found[2] or "[" in found[0]:
            self.bash_only(start, found[0])
        is_array = self.peek() == "("
        if is_array:
            self.bash_only(start, "an array")
            self.at += 1
            self._skip_lines()
            while self.at < self.end and self.peek() != ")":
                before = len(values)
                values += self._words_of_line()
                if any(word.raw.startswith("[") or "]=" in word.raw or "]+=" in word.raw for word in values[before:]):
                    self.refuse(start, f"a subscript can run commands: {_NOT_UNDERSTOOD}", "list the values alone")
                self._skip_lines()
                if len(values) == before and self.peek() != ")":
                    self.refuse(start, f"this array is unusual: {_NOT_UNDERSTOOD}", "list plain values")
            self._close(")", start)
            if self.peek() not in ("", *METACHARACTERS):
                self.refuse(start, f"an array with text behind it: {_NOT_UNDERSTOOD}", "put a space between them")
        else:
            values.append(self.word(is_value=True))
        simple.assignments.append(Assignment(found[1], () if found[2] else tuple(values), start, self.at))

    def _redirections_after(self) -> None:
        simple = Simple()
        self.skip_blanks()
        while self._redirection(simple):
            self.skip_blanks()
        if simple.redirections:
            self.script.commands.append(simple)

    def _redirection(self, simple: Simple) -> bool:
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
        self._pending.append(_Document(found[2] or found[3], is_quoted, strips, after))

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
            raise RefusedError(start, end, f"a here-document with joined lines: {_NOT_UNDERSTOOD}", "write whole lines")
        text = Grammar(self.source, start, end, self.script, is_bash=self.is_bash, depth=self.depth + 1)
        text._inner = 1
        while text.at < text.end:
            begin = text.at
            text.quoted_piece()
            if strips and "\n\t" in self.source[begin : text.at] and self.source[begin] in "$`":
                # The tabs are taken away before the shell reads it, which may end an inner here-document.
                why = f"a substitution over several lines in <<-: {_NOT_UNDERSTOOD}"
                raise RefusedError(begin, text.at, why, "write it in one line, or use <<")
