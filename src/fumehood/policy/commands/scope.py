"""What a command is judged with: the text in which it stands, the script that it belongs to, and its program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fumehood.policy.commands import programs
from fumehood.policy.commands.decision import RefusalError, SourceSpan
from fumehood.policy.commands.program_name import ResolvedCommand
from fumehood.policy.commands.syntax import ShellScript, Word
from fumehood.policy.commands.write_targets import WriteTargets
from fumehood.policy.decision import Decision, deny


@dataclass(frozen=True, slots=True)
class SourceText:
    """A source, and, for one inside of another, where it stands there."""

    text: str
    outer: tuple[int, int] | None

    def decision(self, error: RefusalError) -> Decision[SourceSpan]:
        data = self.text.encode("utf-8", "surrogatepass")
        start, end = (len(data[:at].decode("utf-8", "replace")) for at in (error.start, error.end))
        shown = self.outer or (start, end)
        return deny(SourceSpan(*shown, self.text[start:end]), error.reason, error.rule, error.fix)

    def inside(self, word: Word, text: str) -> SourceText:
        data = self.text.encode("utf-8", "surrogatepass")
        start, end = (len(data[:at].decode("utf-8", "replace")) for at in (word.start, word.end))
        return SourceText(text, self.outer or (start, end))


@dataclass(frozen=True, slots=True)
class ShellScope:
    """What holds for the commands of one script; without a script there is no shell, and none of its own commands."""

    source: SourceText
    script: ShellScript | None
    depth: int
    targets: WriteTargets
    moves: bool = False
    """It changes its folder, or begins in another, so that a relative path says nothing."""


@dataclass(frozen=True, slots=True)
class NamedCommand:
    """One command of a scope; `name` is the one by which the tables know its program."""

    words: Sequence[Word]
    program: str
    name: str
    arguments: list[Word]
    resolved: ResolvedCommand
    scope: ShellScope

    @property
    def span(self) -> tuple[int, int]:
        return self.words[0].start, self.words[-1].end

    @property
    def runs_code(self) -> bool:
        return self.name in programs.INTERPRETERS or self.name in programs.SHELLS or "/" in self.name
