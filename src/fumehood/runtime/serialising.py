"""A local runtime whose envelopes are bytes on their way, as between machines: to test agents for that."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import cast

import anyio

from fumehood.runtime.envelopes import Answer, Envelope
from fumehood.runtime.local import LocalRuntime


class SerialisingRuntime(LocalRuntime):
    """Whoever receives something has read it from bytes, and shares no object with who wrote it."""

    def _carry(self, envelope: Envelope) -> Envelope:
        data = envelope.to_bytes(anyio.current_time(), time.time())
        return Envelope.from_bytes(data, anyio.current_time(), time.time())

    def _carry_answer(self, answer: Answer) -> Answer:
        return Answer.from_bytes(answer.to_bytes())

    async def save_state(self) -> Mapping[str, object]:
        return cast("Mapping[str, object]", json.loads(json.dumps(await super().save_state())))
