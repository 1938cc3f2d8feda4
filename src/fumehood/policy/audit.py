"""What the audit log keeps of a run's code and output, and how safe its records are when the caller gets a result."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fumehood.policy.section import Section

Kept = Literal["digest", "full", "none"]


class Audit(Section):
    """Digests unless said otherwise. `written` survives the end of every process, `synced` a loss of power too.

    `required` refuses to open where the log is turned off; so does whatever else here is not the default.
    """

    code: Kept = Field(
        default="digest",
        description="Of code, arguments, and what agents are told and say: a digest, all of it, or nothing.",
    )
    output: Kept = Field(default="digest", description="What is kept of output: a digest, all of it, or nothing.")
    durability: Literal["written", "synced"] = Field(
        default="written", description="`written` survives the end of every process, `synced` a loss of power too."
    )
    required: bool = Field(default=False, description="Refuse to open a sandbox where the audit log is turned off.")
