"""Reads the structure of a script: lists, pipelines, compound commands, here-documents.

A reader of our own, which knows a small part of the language and refuses the rest: no functions, no `select`, no
`coproc`, no subscripts but numbers. The tests compare what it lets through with what bash then does.
"""

from __future__ import annotations

import math
import re

from fumehood.policy.commands.simple_command import SimpleCommandReader
from fumehood.policy.commands.syntax import Arithmetic, Assignment, ShellScript, SimpleCommand, Word
from fumehood.policy.commands.variables import may_fail, names
from fumehood.policy.commands.word_reader import METACHARACTERS

_SEPARATORS = re.compile(r"&&|\|\||;;&|;;|;&|\|&|[;&|\n]")
_CLOSERS = frozenset({"then", "else", "elif", "fi", "do", "done", "esac", "}"})
_OPENERS = frozenset({"if", "while", "until", "for", "case", "{", "[["})
_REFUSED = {"coproc": "leave it out", "select": "use for", "function": "write its commands out", "in": "remove it"}
_RESERVED = re.compile(rf"[^{re.escape(METACHARACTERS)}]+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# `i=0;` or `i=0, j=1;`, which runs before the rest of the loop.
_BEGIN_OF_LOOP = re.compile(
    r"(?:\s*[A-Za-z_][A-Za-z0-9_]*\s*=\s*[0-9]+\s*,)*\s*[A-Za-z_][A-Za-z0-9_]*\s*=\s*[0-9]+\s*;"
)
_CASE_END = re.compile(r";;&|;;|;&")
_COMPARING_NUMBERS = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge"})
_TESTS = names("-a -b -c -d -e -f -g -h -k -n -p -r -s -t -u -w -x -z -G -L -N -O -S")
_COMPARISONS = frozenset({"=", "==", "!=", "=~", "-nt", "-ot", "-ef", *_COMPARING_NUMBERS})
_DEEPEST = 40
_LONGEST_RESERVED = 9  # a letter more than `function`: a word that is longer is none
_NOT_UNDERSTOOD = "not understood"


def read_script(source: str, *, is_bash: bool) -> ShellScript:
    """Raises RefusalError for whatever is not certain."""
    script = ShellScript(is_bash)
    grammar = Grammar(source, 0, len(source), script, is_bash=is_bash)
    grammar.statements("")
    grammar.ends_at(len(source), len(source))
    return script


class Grammar(SimpleCommandReader):
    def __init__(
        self, source: str, start: int, end: int, script: ShellScript, *, is_bash: bool, depth: int = 0
    ) -> None:
        super().__init__(source, start, end, script, is_bash=is_bash, depth=depth)
        self.read_list = self.statements
        self._settled_before = self._arithmetic_before = 0
        """How much was settled, and calculated, before the present line."""

    def statements(self, closer: str) -> str:
        """Up to the closing mark or reserved word, which is left where it stands and returned."""
        waiting, self.pending, settled = self.pending, [], len(self.script.settled)
        self.nesting += 1
        if self.nesting > _DEEPEST:
            self.refuse(self.at, "commands are nested too deeply", "write it in several lines")
        while True:
            self._next_lines()
            if self.at >= self.end or self.peek() == ")" or self.peek(2) == ";;" or self.peek(2) == ";&":
                break
            if self._reserved() in _CLOSERS:
                break
            self._and_or()
        if self.pending:
            self.refuse(self.at, f"a here-document has no end: {_NOT_UNDERSTOOD}", "close it")
        self.pending = waiting
        self.nesting -= 1
        if self.nesting:
            self._unsettle(settled)
        return self._reserved()

    def _next_lines(self) -> None:
        """To the next command. After an error in an expansion bash leaves the rest of the line out, and reads on."""
        before = self.at
        self.skip_lines(in_list=True)
        if self.nesting == 1 and "\n" in self.source[before : self.at]:
            if any(may_fail(part.text) for part in self.script.arithmetic[self._arithmetic_before :]):
                self._unsettle(self._settled_before)
            self._settled_before, self._arithmetic_before = len(self.script.settled), len(self.script.arithmetic)

    def _and_or(self) -> None:
        """Pipelines joined by && and ||, and the mark that ends them."""
        settled = self.script.settled
        began, first = len(settled), self._pipeline()
        kept, simple, is_background = began, first, False
        while True:
            self.skip_blanks()
            if self.at >= self.end or self.peek() == ")":
                break
            found = _SEPARATORS.match(self.source, self.at, self.end)
            if found is None:
                self.refuse(self.at, f"a command cannot begin here: {_NOT_UNDERSTOOD}", "put a ; before it")
            if found[0] in (";;", ";&", ";;&"):
                break
            # The first command runs whatever happens; another one has where && leads to it and on.
            if simple and (found[0] == "&&" or (simple is first and found[0] in (";", "\n", "||"))):
                self._settle(simple)
            kept = len(settled) if simple is first and first else kept
            if found[0] == "||":
                self._unsettle(kept)
            self.at = found.end()
            if found[0] in ("&&", "||", "|", "|&"):
                if found[0] == "|&":
                    self.bash_only(found.start(), "|&")
                self.skip_lines(in_list=True)
                is_first = found[0] in ("&&", "||")
                following = self._pipeline(is_first=is_first)
                simple = following if found[0] == "&&" else None
                continue
            is_background = found[0] == "&"
            if found[0] == "\n":
                self.at -= 1
            break
        self._unsettle(began if is_background else kept)

    def _unsettle(self, since: int) -> None:
        """From here on, what was settled in a part that need not have run, or not in this shell, is not sure."""
        for number, (name, start, end) in enumerate(self.script.settled[since:], since):
            self.script.settled[number] = (name, start, min(end, self.at))

    def _settle(self, simple: SimpleCommand) -> None:
        """What stands after this command finds its values; but the text of a here-document is read before.

        A redirection may fail, and then the shells differ in whether anything is set.
        """
        if self.pending or simple.redirections:
            return
        if not simple.words:
            whole = [assignment.name for assignment in simple.assignments if assignment.is_whole]
            self.script.settled += [(name, self.at, math.inf) for name in whole]
        elif simple.words[0].raw in ("export", "readonly"):
            named = (word.prefix.partition("=") for word in simple.words[1:])
            self.script.settled += [(name, self.at, math.inf) for name, is_set, _ in named if is_set]

    def _pipeline(self, *, is_first: bool = True) -> SimpleCommand | None:
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
        """The next word, if it is written so that it may be a reserved one; in bash `}<(` begins another."""
        found = _RESERVED.match(self.source, self.at, min(self.end, self.at + _LONGEST_RESERVED))
        is_whole = found and self.source[found.end() : min(self.end, found.end() + 2)] not in ("<(", ">(")
        return found[0] if found and is_whole else ""

    def _expect(self, word: str, start: int) -> None:
        self.skip_blanks()
        if self._reserved() != word:
            self.refuse(start, f"{word!r} is missing after this: {_NOT_UNDERSTOOD}", f"add {word!r}")
        self.at += len(word)

    def _command(self) -> SimpleCommand | None:
        start, word = self.at, self._reserved()
        if self.starts_with("(("):
            self.arithmetic_command()
        elif self.peek() == "(":
            self.at += 1
            self.statements(")")
            self.close(")", start)
        elif word in _CLOSERS or word in _REFUSED:
            fix = _REFUSED.get(word, "remove it")
            self.refuse(start, f"{word!r} does not belong here: {_NOT_UNDERSTOOD}", fix, start + len(word))
        elif word in _OPENERS:
            self.at += len(word)
            self._compound(word, start)
        else:
            return self.simple_command()
        self.redirections_after()
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
        self.skip_lines()
        self._expect("do", start)
        self.statements("done")
        self._expect("done", start)

    def _for(self, start: int) -> None:
        names_of_loop, begin = list[str](), self.at
        self.skip_blanks()
        if self.starts_with("(("):
            self.arithmetic_command()
            if found := _BEGIN_OF_LOOP.match(self.script.arithmetic[-1].text):
                names_of_loop = _VARIABLE.findall(found[0])
        else:
            name = self.word()
            self.skip_lines()
            if _VARIABLE.fullmatch(name.raw) is None or self._reserved() != "in":
                self.refuse(start, f"this loop: {_NOT_UNDERSTOOD}", "write it as: for name in words; do ...; done")
            self.at += 2
            self.script.assigned.append(Assignment(name.raw, tuple(self.words_of_line()), start, self.at))
            names_of_loop, begin = [name.raw], self.at
        self.skip_blanks()
        if self.peek() == ";":
            self.at += 1
        self._body(start)
        self.script.settled += [(name, begin, self.at) for name in names_of_loop]

    def _case(self, start: int) -> None:
        self.skip_blanks()
        self.word()
        self.skip_lines()
        self._expect("in", start)
        self.skip_lines()
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
            self.skip_lines()
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
