"""Why a tenant does not get the sandbox that it asks for."""

from __future__ import annotations

from fumehood.errors import FumehoodError, LostError
from fumehood.server.sandboxes.records import SandboxRecord


class NoSuchSandboxError(FumehoodError):
    """The tenant has none with this id, and never had: the same words for every id."""

    def __init__(self) -> None:
        super().__init__("there is no such sandbox")


class EndedError(LostError):
    """It was there, and has ended."""

    def __init__(self, record: SandboxRecord) -> None:
        super().__init__(f"the sandbox has ended: {record.cause}")
        self.record = record


class SandboxClosedError(LostError):
    """It is being closed at this moment."""

    def __init__(self) -> None:
        super().__init__("the sandbox is closed")


class ElsewhereError(FumehoodError):
    """Another server that uses the same database has it."""

    def __init__(self) -> None:
        super().__init__("another server has this sandbox; ask the one that opened it")


class NoCapacityError(FumehoodError):
    """No worker has room for a sandbox now, and none came in the time that an opening waits."""


class DrainingError(FumehoodError):
    """The server is about to end and opens nothing more."""

    def __init__(self) -> None:
        super().__init__("the server is about to end and opens no more sandboxes; try another one")
