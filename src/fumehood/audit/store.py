"""The contract of the place where records are kept, and how to wait for it; `sqlite` implements it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from fumehood.audit.records import Head, Record
from fumehood.errors import AuditError
from fumehood.frozen import frozen

# A writer needs a fraction of a millisecond, unless it was stopped in the middle.
_PAUSES_SECONDS = (0.0002, 0.0005, 0.001, 0.002, 0.005)
_LIMIT_SECONDS = 30.0

T = TypeVar("T")


class BusyError(Exception):
    """Another process or thread is writing; try again in a moment."""


class Patience:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._deadline = time.monotonic() + _LIMIT_SECONDS
        self._pauses = iter(_PAUSES_SECONDS)

    def next_pause(self) -> float:
        """How long to wait before the next try; AuditError when it has been long enough."""
        if time.monotonic() > self._deadline:
            raise AuditError(
                f"the audit log {self._path} has been locked for {_LIMIT_SECONDS:.0f} seconds, and without it nothing "
                f"runs. `fuser {self._path}` names the processes that use it; one of them may be stopped."
            ) from None
        return next(self._pauses, _PAUSES_SECONDS[-1])


def patiently(path: Path, action: Callable[[], T]) -> T:
    """Repeats the action while the store is busy, in a thread that may block."""
    patience = Patience(path)
    while True:
        try:
            return action()
        except BusyError:
            time.sleep(patience.next_pause())


@frozen
class Query:
    """Records that meet all of these."""

    after: int = 0
    """Only records with a higher number."""
    since: str | None = None
    until: str | None = None
    """A time in the format of `Record.time`; `until` is not included."""
    kind: str | None = None
    """`run.finished`, or `run` for all kinds that begin so."""
    run_id: str | None = None
    sandbox_id: str | None = None
    status: str | None = None
    """`denied` finds runs that were denied, and whatever else was denied or refused."""
    text: str | None = None
    """Anywhere in the record, whatever the case of ASCII letters."""
    newest_first: bool = False
    limit: int | None = None


Attached = tuple[bytes, int]
"""What is kept beside a record, and which of the records that are written together it is."""


class Store(Protocol):
    def extend(
        self,
        follow: Callable[[Head], Sequence[Record]],
        attachments: Mapping[str, Attached],
        *,
        is_checkpoint: bool = False,
    ) -> Sequence[Record]:
        """Ask what comes after the head, and keep it: all of it or nothing. BusyError when others write just now.

        `follow` is asked once more when the head turns out to be another one; only its last answer counts.
        """
        ...

    def sync(self) -> None:
        """When this returns, whatever was kept before survives a loss of power."""
        ...

    def settle(self) -> None:
        """Syncs, and does the store's periodic maintenance; may take long, and does not block writers."""
        ...

    def head(self) -> Head: ...

    def find(self, query: Query) -> Iterator[Record]: ...

    def attachment(self, sha256: str) -> bytes | None: ...

    def attachments(self) -> Iterator[tuple[str, bytes]]: ...

    def drop_before(self, seq: int) -> int:
        """Forget the records before this one, and what only they refer to. How many records that were."""
        ...

    def is_replaced(self) -> bool:
        """Whether what is at its place now is not what was opened."""
        ...

    def close(self) -> None: ...
