"""Whose container it is: written on it, so that one whose owner is gone can be told from one that is in use.

An owner of another machine or process namespace is not ours to judge: its containers stay.
"""

from __future__ import annotations

import os
import secrets

from fumehood.host.processes import identity

OWNER = "fumehood.owner"
LEASE = "fumehood.lease"
POLICY = "fumehood.policy"


def container_labels(policy_digest: str) -> dict[str, str]:
    return {OWNER: identity(os.getpid()), LEASE: secrets.token_hex(8), POLICY: policy_digest}
