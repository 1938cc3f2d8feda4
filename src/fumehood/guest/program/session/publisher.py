"""What the session says to the host: one message at a time, whole, and from this process alone."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from threading import RLock

from ...contract.bundle import encode_bundle
from ...contract.frames import FrameSocket, Header
from .interrupts import InterruptGate


class Publisher:
    """Safe from any thread. A forked child prints instead: the conversation is its parent's."""

    def __init__(self, conversation: FrameSocket, gate: InterruptGate) -> None:
        self._conversation = conversation
        self._gate = gate
        self._process = os.getpid()
        self._lock = RLock()
        os.register_at_fork(after_in_child=conversation.close)

    @property
    def is_ours(self) -> bool:
        """Whether this is the session's process, and not a child that the user's code has forked."""
        return os.getpid() == self._process

    def publish(self, data: Mapping[str, object], metadata: Mapping[str, object]) -> None:
        if not self.is_ours:
            print(data.get("text/plain", ""))
            return
        header, body = encode_bundle(data, metadata)
        if header["display"]:
            self.say(header, body)

    def say(self, header: Header, body: bytes = b"") -> None:
        self._gate.shielded(partial(self._send, header, body))

    def _send(self, header: Header, body: bytes) -> None:
        with self._lock:
            self._conversation.send(header, body)
