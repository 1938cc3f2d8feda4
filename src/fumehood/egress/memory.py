"""Memory budgets: how many bytes wait in the gateway for slow readers, of one sandbox and of all sandboxes together.

A connection holds what it has read until that is delivered, and reads nothing more before. When a budget is used up,
connections read tiny pieces: all of them go on, none can be stopped by others, and the sum stays near the budget.
Used in the gateway's thread alone.
"""

from __future__ import annotations

_SMALL_BYTES = 32 * 1024
TINY_BYTES = 4 * 1024


class GatewayMemory:
    """The bytes that the connections of all sandboxes hold."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes, self.held_bytes = most_bytes, 0


class SandboxMemory:
    """The bytes that the connections of one sandbox hold."""

    def __init__(self, most_bytes: int, gateway: GatewayMemory) -> None:
        self.most_bytes, self.held_bytes = most_bytes, 0
        self._gateway = gateway

    def hold(self, change: int) -> None:
        """Changes the number of bytes held, up or down."""
        self.held_bytes += change
        self._gateway.held_bytes += change

    def piece(self, wanted: int) -> int:
        """How many bytes a connection that holds none may read now."""
        used = max(self.held_bytes / self.most_bytes, self._gateway.held_bytes / self._gateway.most_bytes)
        if used < 0.5:
            return min(wanted, self.most_bytes // 4)
        return min(wanted, _SMALL_BYTES if used < 1 else TINY_BYTES)
