"""What every backend offers and what every run is asked with."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import field
from enum import Enum
from typing import Any, Literal, Protocol

from fumehood.frozen import frozen
from fumehood.policy import Policy
from fumehood.results import Display, Outcome
from fumehood.tenant import LOCAL, Tenant


class Input(Enum):
    """Where a run's standard input comes from, when it is neither data nor a descriptor."""

    LIVE = "live"
    """What the caller writes while the program runs."""


@frozen
class TerminalSize:
    columns: int
    rows: int


class EgressAcceptor(Protocol):
    """The gateway as one run reaches it: accepts what arrives at the run's listeners. Thread-safe."""

    def receive_listeners(self, channel: socket.socket) -> None:
        """A socket on which listening sockets from inside arrive as descriptors; the acceptor owns it from here on."""
        ...

    def serve(self, connection: socket.socket, destination: tuple[str, int]) -> None:
        """A connection that was accepted inside and is carried here, and what the program wanted to connect to."""
        ...

    def answer(self, query: bytes) -> bytes | None:
        """A question of the DNS, as a datagram; None to leave it without an answer."""
        ...


@frozen
class EgressEndpoint:
    """A run's connection to the gateway: ports to listen on inside, variables and certificates for its programs."""

    ports: tuple[int, ...]
    environment: Mapping[str, str]
    trust: bytes
    """Certificates in PEM, for `guest.contract.paths.TRUST_FILE`."""
    acceptor: EgressAcceptor


@frozen
class RunRequest:
    """One run, checked and complete. Without `source` the arguments are a command."""

    language: str
    arguments: tuple[str, ...]
    source: bytes | None
    script_name: str
    environment: Mapping[str, str]
    cwd: str
    timeout_seconds: float
    stdin: bytes | int | Literal[Input.LIVE] | None
    """Data, or a descriptor of the caller's to read from, which stays the caller's."""
    interpreter: tuple[str, ...] | None = None
    """The words in front of the source's file, or of the arguments. Source without them is for the warm interpreter."""
    leaves: str | None = None
    """A folder to make before the run: what a compiler puts there outlives it."""
    takes: str | None = None
    """Such a folder of an earlier run, moved to `contract.paths.PRODUCT_FOLDER` before the program starts."""
    terminal: TerminalSize | None = None
    """The program's standard streams are one terminal; its input is live then."""
    endpoint: EgressEndpoint | None = None
    """None: no network at all."""
    is_offline: bool = False
    """It gets no endpoint, whatever the policy allows."""


@frozen
class PackageFolder:
    """Installed packages that a sandbox is to see, read-only."""

    path: str
    digest: str
    """The digest of everything in it."""


@frozen
class Output:
    """Bytes as the program wrote them, to stream 1 or 2."""

    stream: int
    data: bytes


@frozen
class Enforcement:
    """How one control of the policy is enforced. Partial: weaker than the word says; a strict policy refuses it."""

    control: str
    mechanism: str
    partial: bool = False


@frozen
class EnforcementReport:
    """Of one policy. Equal to itself alone: it is the key of what is made of it, at each opening of a sandbox."""

    entries: tuple[Enforcement, ...] = field(default=())

    __eq__, __hash__ = object.__eq__, object.__hash__

    def mechanisms(self) -> dict[str, str]:
        return {entry.control: entry.mechanism for entry in self.entries}


class Execution(Protocol):
    """A run under way."""

    def output(self) -> AsyncIterator[Output | Display]:
        """What the program writes, as it appears, until it has ended and everything is read. A slow reader slows it."""
        ...

    def outcome(self) -> Outcome:
        """How it ended; only when its output is exhausted, or it was ended."""
        ...


class LiveExecution(Execution, Protocol):
    """A run under way that its caller takes part in."""

    async def wait_shortly(self) -> bool:
        """Before output is asked for: until the program ends, but not for long. Whether its outcome is known.

        Most are short, and one wake-up for all that they wrote is cheaper than one for each line.
        """
        ...

    async def wait_for_output(self) -> None:
        """Until `waiting_output` may have more, or the run is over."""
        ...

    def waiting_output(self) -> list[Output]:
        """What is there already, without waiting."""
        ...

    @property
    def is_over(self) -> bool:
        """The program has ended and all its output has been taken."""
        ...

    async def write(self, data: bytes) -> None:
        """Writes to the program's live input; waits while it is not read. Data after the reader closes is lost."""
        ...

    def close_input(self) -> None: ...

    def kill(self) -> None:
        """End it; it is over a moment later."""
        ...

    def send_signal(self, number: int) -> None:
        """Sends a signal to the program's first process; does nothing when it has ended."""
        ...

    def resize(self, size: TerminalSize) -> None: ...


class BackendSession(Protocol):
    """A Python interpreter whose state lives on between runs."""

    @property
    def is_alive(self) -> bool:
        """False when its process has ended, and its state with it."""
        ...

    def execute(self, request: RunRequest) -> AbstractAsyncContextManager[Execution]:
        """One run at a time. Leaving the block early interrupts it; if that does not help, the session ends."""
        ...

    def interrupt(self) -> None:
        """The run under way, if there is one."""
        ...


class Conversation(Protocol):
    """Messages to and from a service inside the sandbox, one party at a time."""

    async def send(self, header: Mapping[str, Any], body: bytes | memoryview = b"") -> None: ...

    async def receive(self) -> tuple[dict[str, Any], bytes]:
        """The next message; SandboxError when the service is gone or does not keep to the format."""
        ...

    def abandon(self) -> None:
        """Marks the conversation as broken off: later use is refused."""
        ...


class BackendSandbox(Protocol):
    """An open place with one policy and one workspace."""

    @property
    def report(self) -> EnforcementReport: ...

    @property
    def image_digest(self) -> str | None:
        """The digest of the image of its root file system, if it has one."""
        ...

    @property
    def shares_listeners(self) -> bool:
        """Whether concurrent runs share listeners, so that a connection cannot be assigned to one of them."""
        ...

    @property
    def closes_at_once(self) -> bool:
        """Whether closing it waits for nothing and cannot fail."""
        ...

    def keep_tmp(self) -> None:
        """Before the first run: all of them, and the file service, see one /tmp, which stays as the workspace does."""
        ...

    def expect(self) -> None:
        """A run is about to be started: what can be done for it before it is known may be. Nothing has to follow."""
        ...

    def start(self, request: RunRequest) -> AbstractAsyncContextManager[LiveExecution]:
        """Leaving the block ends the run, whatever state it is in."""
        ...

    def files(self) -> AbstractAsyncContextManager[Conversation]:
        """A conversation with a file service inside, for one exchange after the other."""
        ...

    def open_session(self, endpoint: EgressEndpoint | None) -> AbstractAsyncContextManager[BackendSession]:
        """Leaving the block ends the session and everything in it."""
        ...

    async def connect(self, port: int) -> socket.socket:
        """A connection to a port of the loopback that its runs share, which does not block.

        ConnectionError when no program listens there, TimeoutError when the guest or the program does not answer.
        """
        ...

    def change_ports(self, ports: tuple[int, ...]) -> None:
        """Runs under way that have a endpoint get listeners at these ports too."""
        ...


class Backend(Protocol):
    @property
    def name(self) -> str: ...

    def check(self, policy: Policy, tenant: Tenant = LOCAL) -> None:
        """Raises when the policy cannot be enforced here; asked before anything is prepared for the sandbox."""
        ...

    async def has_packages(self, policy: Policy, request: str, tenant: Tenant = LOCAL) -> bool:
        """Whether its sandboxes have the policy's packages without being given them, as in an image that was made
        with them. `request` is a digest of what the policy asks for."""
        ...

    def open(
        self, policy: Policy, packages: PackageFolder | None, ports: tuple[int, ...] = (), tenant: Tenant = LOCAL
    ) -> AbstractAsyncContextManager[BackendSandbox]:
        """`ports` are where its runs will have listeners to the gateway, so that they can be opened ahead of time.

        No process, cgroup or container of one tenant ever serves another one.
        """
        ...
