"""What every backend offers and what every run is asked with."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from fumehood.policy import Policy
from fumehood.results import Outcome


@dataclass(frozen=True, slots=True)
class RunRequest:
    """One run, checked and complete. Without `source` the arguments are a command."""

    language: str
    arguments: tuple[str, ...]
    source: bytes | None
    script_name: str
    environment: Mapping[str, str]
    cwd: str
    timeout_seconds: float
    stdin: bytes | int | None
    """Data, or a descriptor of the caller's to read from, which stays the caller's."""


@dataclass(frozen=True, slots=True)
class PackageFolder:
    """Installed packages that a sandbox is to see, read-only."""

    path: str
    digest: str
    """Of everything in it."""


@dataclass(frozen=True, slots=True)
class Output:
    """Bytes as the program wrote them, to stream 1 or 2."""

    stream: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Enforcement:
    """How one control of the policy is enforced. Partial: weaker than the word says; a strict policy refuses it."""

    control: str
    mechanism: str
    partial: bool = False


@dataclass(frozen=True, slots=True)
class EnforcementReport:
    entries: tuple[Enforcement, ...] = field(default=())

    def mechanisms(self) -> dict[str, str]:
        return {entry.control: entry.mechanism for entry in self.entries}


class Execution(Protocol):
    """A run under way."""

    def output(self, *, live: bool) -> AsyncIterator[Output]:
        """What the program writes, until it has ended and everything is read. A slow reader slows the program.

        Live: as it appears. Otherwise it may come a little later and in larger pieces, which costs less.
        """
        ...

    def outcome(self) -> Outcome:
        """How it ended; only after `output` is exhausted."""
        ...


class Conversation(Protocol):
    """Messages to and from a service inside the sandbox, one party at a time."""

    async def send(self, header: Mapping[str, Any], body: bytes | memoryview = b"") -> None: ...

    async def receive(self) -> tuple[dict[str, Any], bytes]:
        """The next message; SandboxError when the service is gone or does not keep to the format."""
        ...

    def abandon(self) -> None:
        """It broke off in the middle: nobody may use it again."""
        ...


class BackendSandbox(Protocol):
    """An open place with one policy and one workspace."""

    @property
    def report(self) -> EnforcementReport: ...

    def start(self, request: RunRequest) -> AbstractAsyncContextManager[Execution]:
        """Leaving the block ends the run, whatever state it is in."""
        ...


class Backend(Protocol):
    @property
    def name(self) -> str: ...

    def check(self, policy: Policy) -> None:
        """Raises when the policy cannot be enforced here; asked before anything is prepared for the sandbox."""
        ...

    def open(self, policy: Policy, packages: PackageFolder | None) -> AbstractAsyncContextManager[BackendSandbox]: ...
