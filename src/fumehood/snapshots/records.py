"""What is known of a snapshot and of a named sandbox: plain data, kept as JSON and checked when it is read."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import Self

from pydantic import BaseModel, ConfigDict

from fumehood.errors import UsageError
from fumehood.policy import Policy
from fumehood.snapshots.manifest import SnapshotManifest

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_RULE = "a name has 1 to 63 of a-z, 0-9, '.', '_' and '-', and begins with a letter or a digit"


def checked_name(name: str) -> str:
    """A single file name, on every file system."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} cannot be the name of a sandbox or snapshot: {_RULE}")
    return name


def now() -> float:
    """Seconds since 1970."""
    return round(time.time(), 3)


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

    @classmethod
    def new(cls, name: str, manifest: SnapshotManifest, policy: Policy) -> Self:
        return cls(
            name=checked_name(name),
            snapshot=manifest.id,
            policy=policy.meaning.decode("ascii"),
            policy_digest=policy.digest,
            policy_name=policy.name,
            created=now(),
            used=now(),
            files=len(manifest.files),
            size_bytes=manifest.size_bytes,
        )

    def with_state(self, manifest: SnapshotManifest) -> Self:
        state = {"snapshot": manifest.id, "files": len(manifest.files), "size_bytes": manifest.size_bytes}
        return self.model_copy(update={**state, "used": now()})

    def with_policy(self, policy: Policy) -> Self:
        meaning = policy.meaning.decode("ascii")
        return self.model_copy(update={"policy": meaning, "policy_digest": policy.digest, "policy_name": policy.name})

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

    @classmethod
    def of(cls, manifest: SnapshotManifest, name: str | None, sandbox: str | None) -> Self:
        return cls(
            snapshot=manifest.id,
            name=name,
            sandbox=sandbox,
            created=now(),
            files=len(manifest.files),
            size_bytes=manifest.size_bytes,
        )

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

    @classmethod
    def of(
        cls, manifest: SnapshotManifest, name: str | None, new_bytes: int = 0, skipped: tuple[str, ...] = ()
    ) -> Self:
        return cls(manifest.id, name, len(manifest.files), manifest.size_bytes, new_bytes, skipped)
