"""The workspace of an open sandbox for the process that keeps its snapshots, which may be another one than has it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING

from fumehood.backends.interface import Conversation
from fumehood.errors import UsageError
from fumehood.sandbox.core import SandboxCore
from fumehood.sandbox.files.artifacts import ArtifactTracker
from fumehood.sandbox.files.watch import Watches
from fumehood.sandbox.runs import SandboxRuns

if TYPE_CHECKING:
    from fumehood.sandbox.session import AsyncSession


class WorkspaceAccess:
    """Knows what may write to the workspace: runs, and processes of sessions."""

    def __init__(
        self,
        core: SandboxCore,
        runs: SandboxRuns,
        watches: Watches,
        session: AsyncSession | None,
        artifacts: ArtifactTracker,
    ) -> None:
        self._core, self._runs, self._artifacts = core, runs, artifacts
        self._programs = (runs, watches, *([session] if session else []))

    def check_rest(self, what: str) -> int:
        """UsageError if a program is running; else how many sessions have a process."""
        if self._runs.are_under_way:
            raise UsageError(
                f"{what} needs a workspace that no program is writing to; wait for the runs under way, or end them"
            )
        self._core.check_open()
        return self._core.open_sessions

    async def end_programs(self) -> None:
        """All that could still write."""
        for part in self._programs:
            await part.close()

    def converse(self) -> AbstractAsyncContextManager[Conversation]:
        """With the file service, about every file: what `filesystem.outputs` lets out is the caller's to judge."""
        return self._core.converse()

    @asynccontextmanager
    async def restore(self) -> AsyncIterator[Conversation]:
        """Likewise; files that were written in the block are no artifacts of later runs."""
        async with self._core.converse() as conversation:
            yield conversation
        await self._artifacts.collect()
