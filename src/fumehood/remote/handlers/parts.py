"""The sandbox of one client, and what it has in it by number: runs in the background, sessions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any, Protocol, TypeVar

from fumehood.errors import UsageError
from fumehood.guest.contract.frames import FrameError, Header
from fumehood.remote.assembly import ConversationMessage
from fumehood.remote.background import RemoteBackgroundRun
from fumehood.remote.conversations import RemoteConversation
from fumehood.remote.ports import RemoteExposedPort
from fumehood.remote.sandbox import RemoteSandbox
from fumehood.remote.session import RemoteSession
from fumehood.sandbox.async_sandbox import AsyncSandbox
from fumehood.sandbox.background import AsyncBackgroundRun
from fumehood.sandbox.ports import AsyncExposedPort
from fumehood.sandbox.session import AsyncSession

T = TypeVar("T")
_MOST = 128
ServedRun = AsyncBackgroundRun | RemoteBackgroundRun
ServedSession = AsyncSession | RemoteSession
ServedPort = AsyncExposedPort | RemoteExposedPort


class SandboxOwner(Protocol):
    """The process that has opened the sandbox for a client, and decides what that client may do with it."""

    async def admit_call(self, call: str) -> None:
        """Before each call; raises to refuse it."""
        ...

    async def close_for_client(self, is_failing: bool) -> None:
        """The client is done with it; with whether an error is the reason."""
        ...

    async def fork(self, count: int) -> list[str]:
        """Copies that the client may open, each by its name."""
        ...

    async def change_policy(self, wanted: object) -> None:
        """`wanted` is a policy as it was packed, or a name."""
        ...


class Parts:
    def __init__(
        self, box: AsyncSandbox | RemoteSandbox, owner: SandboxOwner, close: Callable[[bool], Awaitable[None]]
    ) -> None:
        self.box, self.owner, self.close = box, owner, close
        self.runs: dict[int, ServedRun] = {}
        self.sessions: dict[int, ServedSession] = {}
        self.ports: dict[int, ServedPort] = {}
        self._numbers = count(1)

    def add(self, table: dict[int, T], part: T) -> int:
        number = next(self._numbers)
        table[number] = part
        return number

    def check_room(self, table: dict[int, T]) -> None:
        """Before another part is made."""
        if len(table) >= _MOST:
            raise UsageError(f"a remote sandbox has at most {_MOST} at once; end some of them")

    def forget_concluded(self) -> None:
        """Runs that are over make room for others."""
        if len(self.runs) >= _MOST:
            self.runs = {number: run for number, run in self.runs.items() if not run.is_concluded}

    def forget_closed_ports(self) -> None:
        """A change of the policy closes ports, too."""
        self.ports = {number: port for number, port in self.ports.items() if port.is_open}


CallHandler = Callable[[Parts, RemoteConversation, ConversationMessage], Awaitable[None]]
Handlers = dict[str, CallHandler]


def find(table: dict[int, T], header: Header, what: str) -> T:
    found = table.get(number(header, "part"))
    if found is None:
        raise UsageError(f"there is no such {what}")
    return found


def number(header: Header, name: str) -> int:
    value: Any = header.get(name)
    if type(value) is not int:
        raise FrameError(f"{name} is not a number")
    return value


def text(header: Header, name: str) -> str:
    value: Any = header.get(name)
    if not isinstance(value, str):
        raise FrameError(f"{name} is not text")
    return value
