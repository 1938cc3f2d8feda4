"""Pending requests: direct messages that wait for an answer, which counts once and only from their recipient."""

from __future__ import annotations

import anyio

from fumehood.runtime.envelopes import Envelope, ReplyEnvelope, ReplyFailure
from fumehood.runtime.identity import AgentId


class PendingRequest:
    """A future for one answer."""

    __slots__ = ("_answer", "_is_answered", "to")

    def __init__(self, to: AgentId) -> None:
        self.to = to
        self._is_answered = anyio.Event()
        self._answer: ReplyEnvelope | None = None

    def settle(self, answer: ReplyEnvelope) -> None:
        self._answer = answer
        self._is_answered.set()

    async def wait(self) -> ReplyEnvelope:
        await self._is_answered.wait()
        assert self._answer is not None
        return self._answer


class PendingRequests:
    """The open requests of a runtime, by message id."""

    def __init__(self) -> None:
        self._open: dict[str, PendingRequest] = {}

    def open(self, envelope: Envelope) -> PendingRequest:
        """The caller must `close` it in every case."""
        request = self._open[envelope.message_id] = PendingRequest(envelope.to)
        return request

    def close(self, envelope: Envelope) -> None:
        self._open.pop(envelope.message_id, None)

    def is_open(self, message_id: str) -> bool:
        return message_id in self._open

    def is_awaited(self, envelope: Envelope) -> bool:
        return envelope.message_id in self._open

    def fail(self, message_id: str, failure: ReplyFailure) -> bool:
        """Ends one request without an answer; returns whether it was open."""
        request = self._open.get(message_id)
        return request is not None and self.settle(ReplyEnvelope(message_id, request.to, failure=failure))

    def settle(self, answer: ReplyEnvelope) -> bool:
        """Whether a request to this agent was waiting for this answer."""
        request = self._open.get(answer.message_id)
        if request is None or request.to != answer.by:
            return False
        del self._open[answer.message_id]
        request.settle(answer)
        return True

    def finished(self, envelope: Envelope) -> None:
        """Publications of this process have no sender that waits."""

    def fail_all(self, failure: ReplyFailure) -> None:
        for message_id in list(self._open):
            self.fail(message_id, failure)
