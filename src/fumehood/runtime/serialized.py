"""A local runtime whose envelopes are bytes in transit, as between machines: to test agents for that."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import cast

import anyio

from fumehood.runtime.envelopes import Envelope, ReplyEnvelope
from fumehood.runtime.local import LocalRuntime
from fumehood.runtime.pending import PendingRequests


class _SerialisingRequests(PendingRequests):
    def settle(self, answer: ReplyEnvelope) -> bool:
        return super().settle(ReplyEnvelope.from_bytes(answer.to_bytes()))


class SerialisingRuntime(LocalRuntime):
    """Sender and recipient share no object: what one receives was read from the bytes that the other wrote."""

    def _transfer(self, envelope: Envelope) -> Envelope:
        data = super()._transfer(envelope).to_bytes(anyio.current_time(), time.time())
        return Envelope.from_bytes(data, anyio.current_time(), time.time())

    def _make_pending(self) -> PendingRequests:
        return _SerialisingRequests()

    async def save_state(self) -> Mapping[str, object]:
        return cast("Mapping[str, object]", json.loads(json.dumps(await super().save_state())))
