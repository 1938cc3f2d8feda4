"""The memory that messages of links take until they are done with, where several links share a limit."""

from __future__ import annotations

from typing import Protocol

from fumehood.errors import QuotaError

# Of each link, without asking: calls of the usual size go on while others fill what is shared.
FREE_BYTES = 1024 * 1024


class MemoryAccount(Protocol):
    """What all links of one tenant may hold together beyond what each has for itself."""

    def take(self, size: int) -> QuotaError | None:
        """Why not, if there is not so much left; then nothing is taken."""
        ...

    def give(self, size: int) -> None: ...


class LinkMemory:
    """What one link holds. Without an account its own limits are all that there are."""

    def __init__(self, account: MemoryAccount | None) -> None:
        self._account, self._held = account, 0

    def take(self, size: int) -> QuotaError | None:
        more = _shared(self._held + size) - _shared(self._held)
        refusal = self._account.take(more) if self._account is not None and more else None
        if refusal is None:
            self._held += size
        return refusal

    def give(self, size: int) -> None:
        less = _shared(self._held) - _shared(self._held - size)
        self._held -= size
        if self._account is not None and less:
            self._account.give(less)

    def give_all(self) -> None:
        self.give(self._held)


def _shared(size: int) -> int:
    return max(0, size - FREE_BYTES)
