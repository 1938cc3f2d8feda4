"""The membership of this process: its lease, and what it does when it has lost it.

A process writes its entry again and again, by compare-and-set. Others take its agents over when it has not done so for
the time of a lease; the process itself stops acting after four fifths of it. No clock is compared with that of another
machine, so that clocks which jump change nothing.
"""

from __future__ import annotations

import secrets
from collections import deque

import anyio

from fumehood.errors import DeliveryError, UsageError
from fumehood.runtime.nats.connection import WrongRevisionError, loop_time
from fumehood.runtime.nats.directory import Directory, ProcessEntry
from fumehood.runtime.nats.subjects import Address

_RENEWALS = 15
_FENCE = 0.8


class Membership:
    """The lease of one incarnation after the other."""

    def __init__(self, directory: Directory, process: str, lease_seconds: float) -> None:
        self._directory, self._process, self.lease_seconds = directory, process, lease_seconds
        self.address = Address(process, "")
        self._renewed = float("-inf")
        self._is_given_up = False
        self._revision = self._beat = 0
        self._signs: deque[int] = deque(maxlen=_RENEWALS + 1)
        """The revisions of this incarnation's newest signs of life."""

    @property
    def is_valid(self) -> bool:
        """Whether this process may act as the home of agents."""
        return not self._is_given_up and loop_time() < self._renewed + self.lease_seconds * _FENCE

    async def join(self) -> None:
        """Begins a new incarnation, when an earlier one of this name has ended or its lease has."""
        await self._wait_for_predecessor()
        self.address = Address(self._process, secrets.token_hex(8))
        self._revision, self._beat = self._directory.process_revision(self._process), 0
        self._is_given_up, self._renewed = False, float("-inf")
        self._signs.clear()
        try:
            await self._write()
        except WrongRevisionError:
            raise self._in_use() from None

    async def leave(self) -> None:
        self.expire()
        await self._directory.write(f"process.{self._process}", None, self._revision)

    async def keep(self) -> None:
        """Returns when the lease is lost."""
        while self.is_valid:
            await anyio.sleep(self.lease_seconds / _RENEWALS)
            if not self.is_valid:
                break
            try:
                await self._write()
            except WrongRevisionError:
                if not await self._was_written():
                    break
            except DeliveryError:
                # NATS is away; there is time until the lease ends.
                continue
        self.expire()

    def expire(self) -> None:
        """Gives the lease up."""
        self._is_given_up = True

    def is_lost(self, process: str) -> bool:
        """Whether that process has ended, or its lease has.

        The clock is the order of the directory: since that process's last sign of life, this one has given so many
        as take the time of a lease. A process that was held up, or was without NATS, has given none meanwhile.
        """
        if self._directory.process(process) is None:
            return True
        signs = self._signs
        return len(signs) == signs.maxlen and signs[0] > self._directory.process_revision(process)

    async def _wait_for_predecessor(self) -> None:
        entry, started = self._directory.process(self._process), loop_time()
        if entry is not None and entry.incarnation == self.address.incarnation:
            # This process itself, which has ended its agents.
            return
        while entry is not None and loop_time() < started + self.lease_seconds:
            await anyio.sleep(self.lease_seconds / _RENEWALS)
            await self._directory.refresh(f"process.{self._process}")
            now = self._directory.process(self._process)
            if now is not None and now != entry:
                raise self._in_use()
            entry = now

    async def _write(self) -> None:
        started = loop_time()
        entry = ProcessEntry(incarnation=self.address.incarnation, beat=self._beat + 1)
        seconds = self.lease_seconds / 3
        self._revision = await self._directory.write(f"process.{self._process}", entry, self._revision, seconds=seconds)
        self._beat += 1
        self._signs.append(self._revision)
        # Counted from before the write: others count from when they see it.
        self._renewed = started

    async def _was_written(self) -> bool:
        """Whether it is a write of this process that was stored, and only its acknowledgement was lost."""
        try:
            await self._directory.refresh(f"process.{self._process}")
        except DeliveryError:
            return True
        entry = self._directory.process(self._process)
        if entry is None or entry.incarnation != self.address.incarnation:
            return False
        self._revision, self._beat = self._directory.process_revision(self._process), entry.beat
        return True

    def _in_use(self) -> UsageError:
        return UsageError(f"there is another process with the name {self._process!r}; give each its own")
