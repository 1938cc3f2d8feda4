"""Which shell commands may run."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

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

    allow: Distinct[CommandRule] | None = Field(
        default=None,
        description=(
            "Commands that may run, by their leading words: `ls`, `git status`, `pytest *`. Without it: "
            "all that `deny` does not name."
        ),
    )
    deny: Distinct[CommandRule] = Field(default=(), description="Commands that may not run, whatever `allow` says.")
    enforce: Literal["parse", "kernel"] = Field(
        default="parse",
        description=(
            "`parse` reads command lines before they start. `kernel` also makes it impossible to execute "
            "any other program."
        ),
    )

    @property
    def is_open(self) -> bool:
        """Nothing is said, so that every command may run and none has to be read."""
        return self.allow is None and not self.deny

    @property
    def programs(self) -> tuple[str, ...]:
        """What the allow rules name: names in PATH, and paths."""
        from fumehood.policy.commands.rules import parse_rule

        return tuple(dict.fromkeys(parse_rule(rule).program for rule in self.allow or ()))

    @model_validator(mode="after")
    def _require_names_for_the_kernel(self) -> Self:
        if self.enforce == "kernel":
            if self.allow is None:
                raise ValueError("needs commands.allow: with enforce: kernel, list the programs that may be executed")
            for name in self.programs:
                if "*" in name or ("/" in name and not name.startswith("/")):
                    raise ValueError(f"cannot let the kernel allow {name!r}: name the program, or give its whole path")
        return self
