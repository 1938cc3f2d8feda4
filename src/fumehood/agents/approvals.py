"""Who is asked for approvals in a task, and what happens until they answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fumehood.agents.events import ApprovalRequested, ApprovalSettled, TaskEvent
from fumehood.keywords import known_fields
from fumehood.tools.approvals import ApprovalRequest, ApprovalStore, Ask, Listener


@known_fields
@dataclass(frozen=True, slots=True)
class ApprovalSettings:
    """`ask` shows a request to a person. Without it the answer comes from elsewhere, such as `hood approvals`.

    With `pauses` a task does not wait for that: it stops with the reason `approval_pending`, and `resume` goes on.
    """

    ask: Ask | None = None
    pauses: bool = False
    store: ApprovalStore | None = None
    listener: Listener | None = None


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
