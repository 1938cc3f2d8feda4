"""What becomes of a message that does not arrive: a dead letter, and a record of it."""

from __future__ import annotations

from contextlib import suppress

from fumehood.errors import AuditError
from fumehood.runtime.chronicle import Chronicle
from fumehood.runtime.deadletters import DeadLetter, DeadLetters, Reason
from fumehood.runtime.envelopes import Envelope
from fumehood.runtime.events import MessageDead
from fumehood.runtime.identity import AgentId, TopicId
from fumehood.runtime.messages import Payload

_LONGEST_DETAIL = 2000


class Losses:
    def __init__(self, letters: DeadLetters, chronicle: Chronicle) -> None:
        self.letters = letters
        self._chronicle = chronicle

    async def lose(self, envelope: Envelope, reason: Reason, detail: str, error: str | None = None) -> None:
        target = envelope.to if envelope.topic is None else envelope.topic
        name, payload = envelope.payload.name, envelope.payload
        await self.bury(envelope.message_id, name, payload, envelope.sender, target, reason, detail, error, envelope.to)

    async def bury(
        self,
        message_id: str,
        name: str,
        payload: Payload | None,
        sender: AgentId | None,
        target: AgentId | TopicId,
        reason: Reason,
        detail: str,
        error: str | None = None,
        agent: AgentId | None = None,
    ) -> None:
        """Nothing is handed over any more: a log that cannot be written is the news of whatever comes next."""
        detail = detail[:_LONGEST_DETAIL]
        self.letters.add(DeadLetter(message_id, name, payload, sender, target, reason, detail))
        event = MessageDead(name, sender and str(sender), str(target), reason.value, error)
        with suppress(AuditError):
            await self._chronicle.tell(event, message=message_id, **({"agent": str(agent)} if agent else {}))
