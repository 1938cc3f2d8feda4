"""Which calls of tools a person must approve. Pure.

A rule applies to a call when all that it says is true of it: `tool` is its name, or `*` for every tool; its risk is at
least `risk`; `pattern`, a glob, matches the code or one of the arguments as a whole. Of the rules that apply

    1. those that name the tool stand before those for `*`,
    2. and of what is left the strictest decides: always, then first_use, then never.

A call to which no rule applies needs no approval. `never` takes no pattern: a glob says how a text looks and not
what it does, which is good enough to ask more often, and not to ask less.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Sequence
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from fumehood.policy.quantities import Duration
from fumehood.policy.section import Section, Text

Risk = Literal["low", "medium", "high"]

EVERY_TOOL = "*"
TOOLS = (
    *("python", "shell", "read_file", "write_file", "edit_file", "list_files"),
    *("start_process", "read_process", "write_process", "stop_process", "expose_port"),
    "changed_files",
)
"""The names of the tools in `fumehood.tools`; applications have others."""
_RISKS: dict[Risk, int] = {"low": 0, "medium": 1, "high": 2}
_STRICTNESS = {"never": 0, "first_use": 1, "always": 2}


def _check_tool(text: str) -> str:
    if text != EVERY_TOOL and any(character in text for character in "*?[] "):
        raise ValueError("must be the name of one tool, or * alone for every tool")
    return text


class Approval(Section):
    """When a person is asked before a tool is called, and how long the question stands.

    `expires` is the time for an answer and for its use together; the shortest of the rules that ask holds.
    """

    tool: Annotated[Text, AfterValidator(_check_tool)] = Field(
        description="The name of the tool, or `*` for every tool."
    )
    when: Literal["always", "never", "first_use"] = Field(
        default="always",
        description=(
            "`always` asks each time, `first_use` until a call has been approved once, `never` exempts a "
            "tool from the rule for `*`."
        ),
    )
    risk: Risk | None = Field(default=None, description="Only calls whose risk is at least this.")
    pattern: Text | None = Field(
        default=None, description="Only calls whose code or one of whose arguments matches this glob as a whole."
    )
    reviewer: bool = Field(
        default=False,
        description=(
            "Whether a reviewer of the application's, a function or a model, may answer instead of a person. Every "
            "rule that applies to a call has to say so; without it, a person is asked."
        ),
    )
    expires: Duration = Field(default=600.0, description="How long the question and its answer stand.")

    @classmethod
    def written_out(cls, word: str) -> str:
        return f"{{tool: {word}}}"

    @model_validator(mode="after")
    def _refuse_exempting_patterns(self) -> Self:
        if self.when == "never" and self.pattern is not None:
            raise ValueError(
                "when: never takes no pattern, because other calls that look alike would be free as well; "
                "name the tool alone"
            )
        return self


def rules_that_ask(
    rules: Sequence[Approval], tool: str, risk: Risk, texts: Sequence[str], granted: Collection[Approval] = ()
) -> tuple[Approval, ...]:
    """The rules for which this call needs a yes; none when it may go ahead.

    `texts` is what patterns are compared with. `granted` are the rules under which a call has been approved before.
    """
    found = [rule for rule in rules if _applies(rule, tool, risk, texts)]
    found = [rule for rule in found if rule.tool == tool] or found
    strictest = max((_STRICTNESS[rule.when] for rule in found), default=0)
    deciding = [rule for rule in found if _STRICTNESS[rule.when] == strictest]
    return tuple(
        rule for rule in deciding if rule.when == "always" or (rule.when == "first_use" and rule not in granted)
    )


def may_be_reviewed(rules: Sequence[Approval], tool: str, risk: Risk, texts: Sequence[str]) -> bool:
    """Whether a reviewer may answer for this call: no rule that applies, for the tool or for `*`, wants a person."""
    found = [rule for rule in rules if rule.when != "never" and _applies(rule, tool, risk, texts)]
    return all(rule.reviewer for rule in found)


def _applies(rule: Approval, tool: str, risk: Risk, texts: Sequence[str]) -> bool:
    if rule.tool not in (tool, EVERY_TOOL):
        return False
    if rule.risk is not None and _RISKS[risk] < _RISKS[rule.risk]:
        return False
    return rule.pattern is None or any(fnmatch.fnmatchcase(text, rule.pattern) for text in texts)
