"""What the audit log keeps of a run's code and output, and how safe its records are when the caller gets a result."""

from __future__ import annotations

from typing import Literal

from fumehood.policy.section import Section

Kept = Literal["digest", "full", "none"]


class Audit(Section):
    """Digests unless said otherwise. `written` survives the end of every process, `synced` a loss of power too.

    `required` refuses to open where the log is turned off; so does whatever else here is not the default.
    """

    code: Kept = "digest"
    output: Kept = "digest"
    durability: Literal["written", "synced"] = "written"
    required: bool = False
