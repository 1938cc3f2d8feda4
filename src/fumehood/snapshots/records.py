"""What is known of a snapshot and of a named sandbox: plain data, kept as JSON and checked when it is read."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from fumehood.errors import UsageError
from fumehood.policy import Policy

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_RULE = "a name has 1 to 63 of a-z, 0-9, '.', '_' and '-', and begins with a letter or a digit"


def checked_name(name: str) -> str:
    """A single file name, on every file system."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} cannot be the name of a sandbox or snapshot: {_RULE}")
    return name


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


class NamedSandbox(_Record):
    """A policy, and the state of the workspace that the next use begins with."""

    name: str
    snapshot: str
    policy: str
    """Canonical, as its digest covers it."""
    policy_digest: str
    policy_name: str | None
    created: float
    used: float
    """When its state was last read or written; seconds since 1970."""
    files: int
    size_bytes: int

    def read_policy(self) -> Policy:
        policy = Policy.of_meaning(self.policy, self.policy_name)
        if policy.digest != self.policy_digest:
            raise UsageError(
                f"the policy of sandbox {self.name!r} means something else to this version of Fumehood; "
                "give it one with --policy"
            )
        return policy


class SnapshotRecord(_Record):
    """A snapshot that was asked for, and is kept until it is removed or too old."""

    snapshot: str
    name: str | None
    sandbox: str | None
    """The named sandbox that it was made of."""
    created: float
    files: int
    size_bytes: int

    @property
    def key(self) -> str:
        return self.name or self.snapshot


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The workspace at one moment, durable. `Sandbox(snapshot=...)` begins with it."""

    id: str
    """The digest of its manifest: the same for the same paths, modes, times and contents."""
    name: str | None
    files: int
    size_bytes: int
    new_bytes: int
    """What it added to the store; everything else was there already."""
    skipped: tuple[str, ...] = ()
    """What cannot be in a snapshot: pipes, sockets and devices."""
