"""Memory budgets: how many bytes wait in the gateway for slow readers, of one sandbox and of all sandboxes together.

A connection holds what it has read until that is delivered, and reads nothing more before, unless it needs more to
understand what it has: the rest of a head, of a TLS record. When a budget is used up, connections read tiny pieces: all
of them go on, none can be stopped by others, and the sum stays near the budget. Only a head or a handshake that is both
long and unfinished is given up then: it cannot be delivered in part. Used in the gateway's thread alone.
"""

from __future__ import annotations

_SMALL_BYTES = 32 * 1024
TINY_BYTES = 4 * 1024
# As long as the heads that common servers accept: what may be kept unfinished although a budget is used up.
MOST_KEPT_BYTES = 8 * 1024
# When others have used up the gateway's budget, a sandbox still has this part of its own.
_OWN_PART = 8


class MemoryUsedUpError(ConnectionAbortedError):
    """A connection needs more memory to go on than there is."""

    def __init__(self) -> None:
        super().__init__(
            "the connections of the sandbox hold all the memory that they may, and this one has a long, unfinished head"
        )


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

    def check_kept(self, kept: int) -> None:
        """Raises MemoryUsedUpError if a connection may not read more besides so many bytes that it cannot deliver."""
        if kept > MOST_KEPT_BYTES and self._is_used_up:
            raise MemoryUsedUpError

    @property
    def _is_used_up(self) -> bool:
        if self._gateway.held_bytes >= self._gateway.most_bytes:
            return self.held_bytes >= self.most_bytes // _OWN_PART
        return self.held_bytes >= self.most_bytes

    def piece(self, wanted: int) -> int:
        """How many bytes a connection may read now."""
        used = max(self.held_bytes / self.most_bytes, self._gateway.held_bytes / self._gateway.most_bytes)
        if used < 0.5:
            return min(wanted, self.most_bytes // 4)
        return min(wanted, _SMALL_BYTES if used < 1 else TINY_BYTES)
