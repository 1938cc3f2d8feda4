"""What an agent may do through tools: which shell commands, and which calls a person must approve."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator

from fumehood.policy.section import Distinct, Section, Text


def _check_rule(text: str) -> str:
    # Here and not above: most policies have no rules, and reading them takes much to import.
    from fumehood.policy.commands.rules import parse_rule

    parse_rule(text)
    return text


CommandRule = Annotated[Text, AfterValidator(_check_rule)]


class Commands(Section):
    """Shell commands by their leading words. `deny` wins; with `allow`, whatever is not listed is denied too.

    `enforce: kernel` asks that only allowed programs can be executed at all, besides reading the command line.
    """

    allow: Distinct[CommandRule] | None = None
    deny: Distinct[CommandRule] = ()
    enforce: Literal["parse", "kernel"] = "parse"

    @property
    def is_open(self) -> bool:
        """Nothing is said, so that every command may run and none has to be read."""
        return self.allow is None and not self.deny


class Approval(Section):
    """When a person is asked before a tool runs; `pattern` is a glob over the call, `risk` the least that asks."""

    tool: Text
    when: Literal["always", "never", "first_use"] = "always"
    risk: Literal["low", "medium", "high"] | None = None
    pattern: Text | None = None
