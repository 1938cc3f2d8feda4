"""A local runtime whose envelopes are bytes in transit, as between machines: to test agents for that."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import cast

import anyio

from fumehood.runtime.envelopes import Envelope, ReplyEnvelope
from fumehood.runtime.local import LocalRuntime


class SerialisingRuntime(LocalRuntime):
    """Sender and recipient share no object: what one receives was read from the bytes that the other wrote."""

    def _transfer(self, envelope: Envelope) -> Envelope:
        data = envelope.to_bytes(anyio.current_time(), time.time())
        return Envelope.from_bytes(data, anyio.current_time(), time.time())

    def _transfer_reply(self, answer: ReplyEnvelope) -> ReplyEnvelope:
        return ReplyEnvelope.from_bytes(answer.to_bytes())

    async def save_state(self) -> Mapping[str, object]:
        return cast("Mapping[str, object]", json.loads(json.dumps(await super().save_state())))
