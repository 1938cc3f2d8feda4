"""Where the calls of one agent are carried out: a sandbox, a toolbox, a gate that asks people, filters.

Everything that a model wants done goes through `Desk.call`, and so through the policy, whatever the prompt was.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import anyio.to_thread

from fumehood.agents.asking import Announcer, Asking
from fumehood.agents.events import ArtifactFound, CallMade, CallReturned
from fumehood.agents.messages import CallRequest
from fumehood.agents.performing import Work
from fumehood.agents.premises import Premises, Room
from fumehood.audit.trail import Trail
from fumehood.errors import UsageError
from fumehood.policy import Policy
from fumehood.results import Artifact
from fumehood.sandbox.sandbox import AsyncSandbox
from fumehood.tools.approvals import Approvals, ApprovalStore
from fumehood.tools.events import ToolRefused
from fumehood.tools.filters import Pipeline
from fumehood.tools.gate import Gate
from fumehood.tools.result import ToolResult, ToolStatus
from fumehood.tools.tool import Tool, ToolSchema
from fumehood.tools.toolbox import Toolbox

# No call that makes sense is longer; of one that does not, not everything is kept.
_MOST_ARGUMENTS = 1_000_000
_KEPT_ARGUMENTS = 1_000


@dataclass(frozen=True, slots=True)
class Workplace:
    """What an agent was given. Without tools nothing is opened."""

    policy: Policy
    tools: tuple[Tool, ...]
    asking: Asking
    filters: Pipeline | None = None
    session: bool = False
    out: OutFolder | None = None
    parallel_calls: int = 1

    @asynccontextmanager
    async def opened(self, trail: Trail, premises: Premises) -> AsyncIterator[Room | None]:
        if not self.tools:
            yield None
            return
        async with premises.opened(self.policy, session=self.session, trail=trail) as room:
            yield room

    def desk(self, room: Room | None, agent: str, work: Work) -> Desk:
        trail = work.trail_of(agent)
        filters = self.filters or Pipeline(self.policy, trail=trail)
        if room is None:
            return Desk(self, agent, work, filters, None, None, None)
        box = room.sandbox
        inside = replace(box.trail, ids={**box.trail.ids, **trail.ids}) if box.trail.is_on else box.trail
        asking = self.asking
        approvals = Approvals(
            lambda: box.policy,
            ask=asking.ask,
            store=asking.store,
            trail=inside,
            listener=Announcer(agent, work.emit, asking.listener),
            unanswered="pause" if asking.pauses else "wait",
            withdraws=True,
        )
        toolbox = room.toolbox(self.tools, gate=approvals, filters=filters, trail=inside)
        return Desk(self, agent, work, filters, box, toolbox, approvals)

    async def withdraw(self, approval: str, trail: Trail) -> None:
        store = self.asking.store or await anyio.to_thread.run_sync(ApprovalStore)
        with suppress(UsageError):  # somebody else was asked, by a runtime's own gate; it expires there
            await anyio.to_thread.run_sync(partial(store.withdraw, approval, trail))


@dataclass(frozen=True, slots=True)
class Desk:
    """A workplace in use for one task."""

    _place: Workplace
    _agent: str
    _work: Work
    filters: Pipeline
    _box: AsyncSandbox | None
    _toolbox: Toolbox | None
    _gate: Gate | None
    _fresh: dict[str, Artifact] = field(default_factory=dict[str, Artifact])

    @property
    def parallel_calls(self) -> int:
        return self._place.parallel_calls

    def is_parallel(self, request: CallRequest) -> bool:
        """Whether it may be carried out together with others. Where people may be asked, they are asked in order, and a
        session has one run at a time."""
        if self._toolbox is None or self._box is None:
            return True
        is_free = not self._place.session and not self._box.policy.approvals and self._has_own_gate
        return is_free and self._place.parallel_calls > 1 and self._toolbox.is_parallel(request.tool)

    @property
    def _has_own_gate(self) -> bool:
        """A gate of a runtime's may ask about anything."""
        return self._toolbox is not None and self._toolbox.gate is self._gate

    def schemas(self) -> tuple[ToolSchema, ...]:
        return tuple(self._toolbox.schemas()) if self._toolbox else ()

    def expect(self, approval: str) -> None:
        if self._toolbox is not None and isinstance(self._toolbox.gate, Approvals):
            self._toolbox.gate.expect(approval)

    async def call(self, request: CallRequest) -> ToolResult:
        """ApprovalPendingError when somebody has to answer first, and the task is to pause until then."""
        self._work.emit(CallMade(self._agent, request.call_id, request.tool, request.arguments))
        result = await self._carry_out(request)
        returned = CallReturned(self._agent, request.call_id, request.tool, result.status, result.text, result.run)
        self._work.emit(returned)
        for artifact in result.run.artifacts if result.run else ():
            self._work.artifacts[artifact.path] = self._fresh[artifact.path] = artifact
            self._work.emit(ArtifactFound(self._agent, artifact))
        return result

    async def _carry_out(self, request: CallRequest) -> ToolResult:
        if self._toolbox is None:
            await self._work.trail.write(ToolRefused(request.tool[:200], "this agent has no tools"))
            return ToolResult("There are no tools here; answer in words.", ToolStatus.INVALID)
        return await self._toolbox.call(request.tool, request.arguments)

    async def deliver(self) -> None:
        """Copy what may leave to the application's folder; what is gone again is left out."""
        if self._place.out is None or self._box is None:
            return
        for path in self._fresh:
            with suppress(UsageError):
                await self._box.stat(path)
                await self._place.out.take(self._box, path)


class OutFolder:
    """A folder of the application's that artifacts are copied to; only what came from here is ever replaced."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._taken: set[str] = set()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"the folder {str(path)!r} cannot be made: {error.strerror}") from error

    async def take(self, box: AsyncSandbox, path: str) -> None:
        target = self.path / path
        await anyio.to_thread.run_sync(self._make_room, path, target)
        await box.download(path, target)
        self._taken.add(path)

    def _make_room(self, path: str, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        if path in self._taken:
            target.unlink(missing_ok=True)


def trimmed(request: CallRequest) -> CallRequest:
    if len(request.arguments) <= _MOST_ARGUMENTS:
        return request
    return request.model_copy(update={"arguments": request.arguments[:_KEPT_ARGUMENTS]})
