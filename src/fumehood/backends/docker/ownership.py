"""Whose container it is: written on it, so that one whose owner is gone can be told from one that is in use."""

from __future__ import annotations

import os
import secrets

from fumehood.processes import boot, identity, is_alive

OWNER = "fumehood.owner"
LEASE = "fumehood.lease"
POLICY = "fumehood.policy"


def labels(policy_digest: str) -> dict[str, str]:
    return {OWNER: identity(os.getpid()), LEASE: secrets.token_hex(8), POLICY: policy_digest}


def is_gone(owner: str) -> bool:
    """Whether the process that a label names has ended. A container of another machine's is not ours to judge."""
    return owner.partition(" ")[0] == boot() and not is_alive(owner)
