"""The fingerprint of what a policy enforces."""

from __future__ import annotations

import hashlib
import json

from fumehood.policy.section import Section

# Neither changes what is enforced, so neither may separate two sandboxes or revoke an approval.
UNENFORCED = frozenset({"name", "tests"})


def compute_digest(policy: Section) -> str:
    """SHA-256 over canonical JSON; the models keep equal meaning as equal data, so equal meaning is an equal digest."""
    return "sha256:" + hashlib.sha256(canonical_meaning(policy)).hexdigest()


def canonical_meaning(policy: Section) -> bytes:
    """What the digest is a digest of."""
    meaning = policy.model_dump(mode="json", exclude=set(UNENFORCED))
    return json.dumps(meaning, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode(
        "ascii"
    )
