"""A place for file tests: a folder that plays the sandbox's root, the real service in it, and a real socket between.

The service runs in a thread here. Nothing of the kernel's isolation is around it, so whatever stays inside does so by
the service's own doing.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from fumehood.backends.conversation import SocketConversation
from fumehood.backends.interface import Conversation
from fumehood.guest.contract import frames
from fumehood.guest.files import service as guest_files
from fumehood.policy import Policy
from fumehood.sandbox.audit import SandboxAudit
from fumehood.sandbox.files import AsyncFiles
from fumehood.sandbox.files.artifacts import ArtifactTracker
from fumehood.sandbox.files.errors import Converse

EVERYTHING = {"filesystem": {"outputs": ["**"]}}


def files_through(policy: Policy, converse: Converse) -> AsyncFiles:
    """Without an audit log."""
    return AsyncFiles(policy, converse, SandboxAudit(False), ArtifactTracker(policy, converse))


@dataclass
class Room:
    root: Path
    policy: Policy = field(default_factory=lambda: Policy(**EVERYTHING))

    def __post_init__(self) -> None:
        self.workspace.mkdir(parents=True, exist_ok=True)

    @property
    def workspace(self) -> Path:
        return self.root / "workspace"

    @property
    def files(self) -> AsyncFiles:
        return files_through(self.policy, self.converse)

    @property
    def artifacts(self) -> ArtifactTracker:
        """A new one, which knows of no file."""
        return ArtifactTracker(self.policy, self.converse)

    @asynccontextmanager
    async def converse(self) -> AsyncIterator[Conversation]:
        async with talking_to(self._serve) as conversation:
            yield conversation

    @asynccontextmanager
    async def staying_files(self) -> AsyncIterator[AsyncFiles]:
        """One conversation for all that is asked, as a pool hands it out again and again."""
        async with self.converse() as conversation:
            yield files_through(self.policy, lambda: nullcontext(conversation))

    def _serve(self, stream: socket.socket) -> None:
        guest_files.serve(frames.FrameSocket(stream), str(self.root), str(self.workspace))


@asynccontextmanager
async def talking_to(service: Callable[[socket.socket], None]) -> AsyncIterator[SocketConversation]:
    """A conversation with whatever `service` does on the other end of it."""
    ours, theirs = socket.socketpair()
    thread = threading.Thread(target=_run, args=(service, theirs))
    thread.start()
    conversation = SocketConversation(ours)
    try:
        yield conversation
    finally:
        conversation.close()
        thread.join()


def _run(service: Callable[[socket.socket], None], stream: socket.socket) -> None:
    with stream:
        service(stream)
