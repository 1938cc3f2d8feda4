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

    Besides reading the command line, only allowed programs can be executed by any process in the sandbox, wherever
    the kernel can enforce that. `enforce: kernel` opens no sandbox where it cannot; `enforce: parse` does without it.
    """

    allow: Distinct[CommandRule] | None = Field(
        default=None,
        description=(
            "Commands that may run, by their leading words: `ls`, `git status`, `pytest *`. Without it: "
            "all known tools that `deny` does not name, as with `*`."
        ),
    )
    deny: Distinct[CommandRule] = Field(default=(), description="Commands that may not run, whatever `allow` says.")
    enforce: Literal["auto", "parse", "kernel"] = Field(
        default="auto",
        description=(
            "Lines are read before they start. `auto` also makes it impossible to execute any other program wherever "
            "the backend can do that, `kernel` opens no sandbox where it cannot, `parse` does without it."
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

    @property
    def unnamed(self) -> str | None:
        """Why the kernel cannot tell which programs the rules allow; None when it can."""
        if self.allow is None:
            return "there is no commands.allow that lists the programs"
        vague = (name for name in self.programs if "*" in name or ("/" in name and not name.startswith("/")))
        return next((f"{name!r} in commands.allow is neither a name nor a whole path" for name in vague), None)

    @model_validator(mode="after")
    def _require_names_for_the_kernel(self) -> Self:
        if self.enforce == "kernel" and self.unnamed is not None:
            raise ValueError(f"cannot have enforce: kernel: {self.unnamed}; name the programs that may be executed")
        return self
