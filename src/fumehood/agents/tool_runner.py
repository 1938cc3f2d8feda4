"""Tool calls of one agent: carried out in its sandbox, through a toolbox, approvals and filters.

Everything that a model wants done goes through `ToolRunner.call`, and so through the policy, whatever the prompt was.
The calls of one answer are carried out at once where their tools allow it, with results in the model's order.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from fumehood.agents.events import ApprovalRequested, ApprovalSettled, ArtifactFound, CallMade, CallReturned, TaskEvent
from fumehood.agents.messages import CallRequest
from fumehood.agents.sandbox_provider import ProvidedSandbox, SandboxProvider
from fumehood.agents.task import TaskContext
from fumehood.audit import AuditLog
from fumehood.audit.trail import Trail
from fumehood.errors import UsageError
from fumehood.keywords import known_fields
from fumehood.policy import Policy
from fumehood.policy.audit import Kept
from fumehood.policy.secret import PROCESS_SECRETS
from fumehood.results import Artifact
from fumehood.sandbox.interface import AnySandbox, Opener
from fumehood.tools.approvals import ApprovalRequest, Approvals, ApprovalStore, Ask, Listener, Reviewer
from fumehood.tools.calls import Gate, ToolRefused
from fumehood.tools.filters import Pipeline
from fumehood.tools.result import ToolResult, ToolStatus
from fumehood.tools.tool import Tool, ToolSchema
from fumehood.tools.toolbox import Toolbox


class ArtifactFolder:
    """A folder for copies of artifacts. It replaces only files that it copied itself."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._taken: set[str] = set()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"the folder {str(path)!r} cannot be made: {error.strerror}") from error

    async def take(self, box: AnySandbox, path: str) -> None:
        target = self.path / path
        await anyio.to_thread.run_sync(self._make_room, path, target)
        await box.files.download(path, target)
        self._taken.add(path)

    def _make_room(self, path: str, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        if path in self._taken:
            target.unlink(missing_ok=True)


@known_fields
@dataclass(frozen=True, slots=True)
class ApprovalSettings:
    """`ask` shows a request to a person. Without it the answer comes from elsewhere, such as `hood approvals`.

    With `pauses` a task does not wait for that: it stops with the reason `approval_pending`, and `resume` goes on.
    A `reviewer` answers first what the policy leaves to one.
    """

    ask: Ask | None = None
    pauses: bool = False
    store: ApprovalStore | None = None
    listener: Listener | None = None
    reviewer: Reviewer | None = None


PAUSE = ApprovalSettings(pauses=True)


class ApprovalAnnouncer:
    """Emits events of the task, and calls the other listener."""

    def __init__(self, agent: str, emit: Callable[[TaskEvent], None], listener: Listener | None) -> None:
        self._agent, self._emit, self._listener = agent, emit, listener

    def waiting(self, request: ApprovalRequest) -> None:
        self._emit(ApprovalRequested(self._agent, request))
        if self._listener is not None:
            self._listener.waiting(request)

    def settled(self, request: ApprovalRequest) -> None:
        self._emit(ApprovalSettled(self._agent, request))
        if self._listener is not None:
            self._listener.settled(request)


@dataclass(frozen=True, slots=True)
class ToolSetup:
    """The tools of an agent and what they need, fixed when it is made. Without tools no sandbox is opened."""

    policy: Policy
    tools: tuple[Tool, ...]
    approvals: ApprovalSettings
    filters: Pipeline | None = None
    session: bool = False
    out: ArtifactFolder | None = None
    parallel_calls: int = 1
    sandboxes: Opener | None = None

    @asynccontextmanager
    async def opened(self, trail: Trail, provider: SandboxProvider) -> AsyncIterator[ProvidedSandbox | None]:
        if not self.tools:
            yield None
            return
        async with provider.opened(self.policy, session=self.session, trail=trail, wanted=self.sandboxes) as provided:
            yield provided

    def runner(self, provided: ProvidedSandbox | None, agent: str, task: TaskContext) -> ToolRunner:
        trail = task.trail_of(agent)
        source = PROCESS_SECRETS if provided is None else provided.sandbox.secrets
        filters = self.filters or Pipeline(self.policy, trail=trail, source=source)
        if provided is None:
            return ToolRunner(self, agent, task, filters, None, None, None)
        box = provided.sandbox
        inside = replace(box.trail, ids={**box.trail.ids, **trail.ids}) if box.trail.is_on else trail
        settings = self.approvals
        gate = Approvals(
            lambda: box.policy,
            ask=settings.ask,
            store=settings.store,
            trail=inside,
            listener=ApprovalAnnouncer(agent, task.emit, settings.listener),
            unanswered="pause" if settings.pauses else "wait",
            withdraws=True,
            reviewer=settings.reviewer,
        )
        toolbox = provided.toolbox(self.tools, gate=gate, filters=filters, trail=inside)
        return ToolRunner(self, agent, task, filters, box, toolbox, gate)

    async def withdraw(self, approval: str, trail: Trail) -> None:
        store = self.approvals.store or await anyio.to_thread.run_sync(ApprovalStore)
        with suppress(UsageError):  # asked by a runtime's own gate, where it expires
            await anyio.to_thread.run_sync(partial(store.withdraw, approval, trail))


@dataclass(frozen=True, slots=True)
class ToolRunner:
    """Runs the tool calls of one agent in one task."""

    _setup: ToolSetup
    _agent: str
    _work: TaskContext
    filters: Pipeline
    _box: AnySandbox | None
    _toolbox: Toolbox | None
    _gate: Gate | None
    _fresh: dict[str, Artifact] = field(default_factory=dict[str, Artifact])

    @property
    def parallel_calls(self) -> int:
        return self._setup.parallel_calls

    def is_parallel(self, request: CallRequest) -> bool:
        """Whether it may be carried out together with others. Where people may be asked, they are asked in order, and a
        session has one run at a time."""
        if self._toolbox is None or self._box is None:
            return True
        is_free = not self._setup.session and not self._box.policy.approvals and self._has_own_gate
        return is_free and self._setup.parallel_calls > 1 and self._toolbox.is_parallel(request.tool)

    @property
    def _has_own_gate(self) -> bool:
        """A gate of a runtime's may ask about anything."""
        return self._toolbox is not None and self._toolbox.gate is self._gate

    @property
    def kept_messages(self) -> Kept:
        """What the audit log keeps of what users and models say: as much as of code, which models write into it."""
        return self._setup.policy.audit.code

    def records_to(self, log: AuditLog | None) -> bool:
        """Whether the records of calls are in this log."""
        return self._box is None or self._box.trail.log is log

    def schemas(self) -> tuple[ToolSchema, ...]:
        return tuple(self._toolbox.schemas()) if self._toolbox else ()

    def expect(self, approval: str) -> None:
        if self._toolbox is not None and isinstance(self._toolbox.gate, Approvals):
            self._toolbox.gate.expect(approval)

    async def call(self, request: CallRequest) -> ToolResult:
        """ApprovalPendingError when the call waits for an approval, and the task is to pause until then."""
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
            return ToolResult("There are no tools here; answer without them.", ToolStatus.INVALID)
        return await self._toolbox.call(request.tool, request.arguments)

    async def deliver(self) -> None:
        """Copy what may leave to the application's folder; what is gone again is left out."""
        if self._setup.out is None or self._box is None:
            return
        for path in self._fresh:
            with suppress(UsageError):
                await self._box.files.stat(path)
                await self._setup.out.take(self._box, path)


def batches(requests: Sequence[CallRequest], is_parallel: Callable[[CallRequest], bool]) -> Iterator[list[CallRequest]]:
    """Neighbours that may be carried out together. What is not parallel comes after all before it, and alone."""
    together: list[CallRequest] = []
    for request in requests:
        if is_parallel(request):
            together.append(request)
            continue
        if together:
            yield together
        yield [request]
        together = []
    if together:
        yield together


async def call_together(
    requests: Sequence[CallRequest],
    call: Callable[[CallRequest], Awaitable[ToolResult]],
    keep: Callable[[CallRequest, ToolResult], None],
    most: int,
) -> None:
    """`keep` is given the results in the order of the requests: those that there are, also when it is cancelled.

    The first error ends the others, and is raised as it is.
    """
    if len(requests) == 1:
        keep(requests[0], await call(requests[0]))
        return
    results: dict[str, ToolResult] = {}
    errors: list[Exception] = []
    free = anyio.CapacityLimiter(most)

    async def carry_out(request: CallRequest) -> None:
        async with free:
            try:
                results[request.call_id] = await call(request)
            except Exception as error:
                errors.append(error)
                group.cancel_scope.cancel()

    try:
        async with anyio.create_task_group() as group:
            for request in requests:
                group.start_soon(carry_out, request)
    finally:
        for request in requests:
            if request.call_id in results:
                keep(request, results[request.call_id])
    if errors:
        raise errors[0]
