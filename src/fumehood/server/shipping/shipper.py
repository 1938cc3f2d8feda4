"""The thread of one sink: goes from chain to chain, sends what is new, and remembers what has arrived."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from fumehood.audit.store import BusyError
from fumehood.errors import AuditError
from fumehood.frozen import frozen
from fumehood.host.locks import try_exclusive
from fumehood.server.shipping.chains import Chain, RecordBatch, find_chains, read_batch
from fumehood.server.shipping.cursors import CursorFile, Position
from fumehood.server.shipping.sinks import Sink, SinkError

_log = logging.getLogger(__name__)


@frozen
class Pauses:
    """In seconds: between looks for news, and after failures, when each is twice the one before, and random."""

    idle: float = 1.0
    first: float = 0.5
    most: float = 60.0

    def after(self, failures: int) -> float:
        return random.uniform(0.5, 1.0) * min(self.most, self.first * 2.0 ** min(failures - 1, 16))


@frozen
class ShippingState:
    sink: str
    sent: int
    """Records that arrived since the server began."""
    waiting: int
    """Records that are known and have not arrived."""
    missed: int
    """Records that were removed from their log before they could be sent."""
    failures: int
    """In a row."""
    error: str | None


class Shipper:
    """`folder` has a cursor for each chain and a lock, so that one process at a time sends to the sink."""

    def __init__(
        self,
        name: str,
        sink: Sink,
        wants: Callable[[str | None], bool],
        state: Path,
        pauses: Pauses | None = None,
    ) -> None:
        self._name, self._sink, self._wants = name, sink, wants
        self._state, self._folder = state, state / "shipping" / name
        self._pauses = pauses or Pauses()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"fumehood-shipping-{name}", daemon=True)
        self._sent, self._missed, self._failures = 0, 0, 0
        self._error: str | None = None
        self._positions: dict[str, Position | None] = {}
        self._behind: dict[str, int] = {}
        self._seen: dict[str, tuple[int, ...]] = {}
        self._turn = 0

    def start(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._thread.start()

    def stop(self) -> None:
        """What is under way is given up, and sent again by the next one."""
        self._stopping.set()
        self._sink.abort()
        self._thread.join()

    @property
    def state(self) -> ShippingState:
        waiting = sum(self._behind.copy().values())
        return ShippingState(self._name, self._sent, waiting, self._missed, self._failures, self._error)

    def _run(self) -> None:
        with ExitStack() as stack:
            while not self._stopping.is_set() and not self._take_lock(stack):
                self._stopping.wait(self._pauses.idle)
            while not self._stopping.is_set():
                self._stopping.wait(self._work())

    def _take_lock(self, stack: ExitStack) -> bool:
        """Another process of this host has the sink until it ends."""
        lock = try_exclusive(self._folder / "lock")
        if lock is not None:
            stack.callback(lock.close)
        return lock is not None

    def _work(self) -> float:
        """How long to wait before the next time."""
        try:
            sent = self._send_round()
        except Exception as error:  # a thread that ended by an error of our own would be a loss that no one sees
            self._failures += 1
            self._error = str(error) or type(error).__name__
            if self._failures == 1 and not self._stopping.is_set():
                is_known = isinstance(error, SinkError | AuditError | BusyError | OSError)
                _log.warning("records do not get to the sink %s: %s", self._name, error, exc_info=not is_known)
            return self._pauses.after(self._failures)
        if self._failures:
            _log.warning("records get to the sink %s again", self._name)
        self._failures, self._error = 0, None
        return 0.0 if sent else self._pauses.idle

    def _send_round(self) -> int:
        """One batch of each chain that has news. After a failure the next round begins behind the chain that failed:
        what a receiver refuses for ever holds up its own chain alone.
        """
        chains, sent = list(find_chains(self._state, self._wants)), 0
        begin = self._turn % len(chains) if chains else 0
        for number, chain in enumerate(chains[begin:] + chains[:begin], begin + 1):
            if self._stopping.is_set():
                break
            self._turn = number
            sent += self._send_next(chain)
        return sent

    def _send_next(self, chain: Chain) -> int:
        fingerprint = chain.fingerprint()
        if self._seen.get(chain.name) == fingerprint:
            return 0
        cursor = CursorFile(self._folder / f"{chain.name}.json")
        if chain.name not in self._positions:
            self._positions[chain.name] = cursor.read()
        batch = read_batch(chain, self._positions[chain.name])
        if batch is None:
            self._seen[chain.name], self._behind[chain.name] = fingerprint, 0
            return 0
        self._behind[chain.name] = batch.behind + len(batch.records)
        self._sink.send(batch)
        self._note(chain, batch, cursor)
        return len(batch.records)

    def _note(self, chain: Chain, batch: RecordBatch, cursor: CursorFile) -> None:
        before = self._positions[chain.name]
        if batch.missed and before is not None:
            _log.warning("%d records of %s were pruned before %s had them", batch.missed, chain.name, self._name)
            self._missed += batch.missed
        cursor.write(batch.end)
        self._positions[chain.name], self._behind[chain.name] = batch.end, batch.behind
        self._sent += len(batch.records)
