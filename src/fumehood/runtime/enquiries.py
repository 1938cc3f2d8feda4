"""Direct messages that wait for their answers. An answer counts once, and only from the agent that was asked."""

from __future__ import annotations

import anyio

from fumehood.runtime.envelopes import Answer, Envelope, Failure
from fumehood.runtime.identity import AgentId


class Enquiry:
    __slots__ = ("_answer", "_is_answered", "to")

    def __init__(self, to: AgentId) -> None:
        self.to = to
        self._is_answered = anyio.Event()
        self._answer: Answer | None = None

    def settle(self, answer: Answer) -> None:
        self._answer = answer
        self._is_answered.set()

    async def wait(self) -> Answer:
        await self._is_answered.wait()
        assert self._answer is not None
        return self._answer


class Enquiries:
    def __init__(self) -> None:
        self._open: dict[str, Enquiry] = {}

    def open(self, envelope: Envelope) -> Enquiry:
        """Whoever opens one closes it, whatever happens."""
        enquiry = self._open[envelope.message_id] = Enquiry(envelope.to)
        return enquiry

    def close(self, envelope: Envelope) -> None:
        self._open.pop(envelope.message_id, None)

    def is_open(self, message_id: str) -> bool:
        return message_id in self._open

    def settle(self, answer: Answer) -> bool:
        """Whether anybody was waiting for this answer from this agent."""
        enquiry = self._open.get(answer.message_id)
        if enquiry is None or enquiry.to != answer.by:
            return False
        del self._open[answer.message_id]
        enquiry.settle(answer)
        return True

    def fail_all(self, failure: Failure) -> None:
        for message_id, enquiry in list(self._open.items()):
            self.settle(Answer(message_id, enquiry.to, failure=failure))
