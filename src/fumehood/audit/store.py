"""What the log asks of the place where its records are kept. `sqlite` is the one there is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from fumehood.audit.chain import Head
from fumehood.audit.records import Record


@dataclass(frozen=True, slots=True)
class Query:
    """Records that meet all of these."""

    after: int = 0
    """Only records with a higher number."""
    since: str | None = None
    until: str | None = None
    """As in `Record.time`; `until` is not included."""
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
        """As `sync`, and whatever else the store has to do from time to time; takes its time, and holds up nobody."""
        ...

    def head(self) -> Head: ...

    def find(self, query: Query) -> Iterator[Record]: ...

    def attachment(self, sha256: str) -> bytes | None: ...

    def attachments(self) -> Iterator[tuple[str, bytes]]: ...

    def drop_before(self, seq: int) -> int:
        """Forget the records before this one, and what only they refer to. How many records that were."""
        ...

    def close(self) -> None: ...
