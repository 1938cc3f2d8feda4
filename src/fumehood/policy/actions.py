"""What an agent may do through tools: which shell commands, and which calls a person must approve."""

from __future__ import annotations

from typing import Literal

from fumehood.policy.section import Distinct, Section, Text


class Commands(Section):
    """Shell commands by their leading words. `deny` wins; with `allow`, whatever is not listed is denied too.

    `enforce: kernel` asks that only allowed programs can be executed at all, besides reading the command line.
    """

    allow: Distinct[Text] | None = None
    deny: Distinct[Text] = ()
    enforce: Literal["parse", "kernel"] = "parse"


class Approval(Section):
    """When a person is asked before a tool runs; `pattern` is a glob over the call, `risk` the least that asks."""

    tool: Text
    when: Literal["always", "never", "first_use"] = "always"
    risk: Literal["low", "medium", "high"] | None = None
    pattern: Text | None = None
