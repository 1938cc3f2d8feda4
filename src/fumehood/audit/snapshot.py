"""The log's file as it is at one moment, for those who suspect it: nothing in it is taken for granted.

Everything is read in one transaction, so that what others write meanwhile is neither missed nor half seen, and from the
tables themselves: an index may lead elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

from fumehood.audit.chain import EMPTY, Head
from fumehood.audit.records import Record
from fumehood.audit.schema import deviations
from fumehood.audit.sqlite import Failing, connect, read_head, read_record_row

_MOST_FAULTS = 20


class Snapshot:
    def __init__(self, path: Path) -> None:
        self.path = path
        with Failing(path, "opened"), ExitStack() as undo:
            self._connection = undo.enter_context(closing(connect(path, read_only=True)))
            self._connection.execute("PRAGMA cell_size_check = ON")
            self._connection.execute("BEGIN")
            undo.pop_all()

    def close(self) -> None:
        self._connection.close()

    def strange_schema(self) -> list[str]:
        """When this is not empty nothing else is worth reading: whoever changed the schema decides what is read."""
        with Failing(self.path, "read"):
            return list(deviations(self._connection))

    def faults(self) -> Iterator[str]:
        """Where the file contradicts itself: pages, indexes that lack a row or have one too many, constraints."""
        with Failing(self.path, "read"):
            for (fault,) in self._connection.execute(f"PRAGMA integrity_check({_MOST_FAULTS})"):
                if fault != "ok":
                    yield f"it contradicts itself: {fault}"
            heads = self._connection.execute("SELECT count(*) FROM head").fetchone()[0]
            if heads != 1:
                yield f"it has {heads} notes of the log's end, and not one"

    def head(self) -> Head:
        with Failing(self.path, "read"):
            return read_head(self._connection) or EMPTY

    def records(self) -> Iterator[Record]:
        """All of them, also those that no reader shows."""
        with Failing(self.path, "read"):
            rows = self._connection.execute(
                "SELECT seq, hash, time, kind, run_id, sandbox_id, body FROM records NOT INDEXED ORDER BY seq"
            )
            yield from map(read_record_row, rows)

    def attachments(self) -> Iterator[tuple[str, bytes, int]]:
        """Digest, content, and the last record that refers to it."""
        with Failing(self.path, "read"):
            for digest, data, seq in self._connection.execute("SELECT sha256, data, last_seq FROM attachments"):
                content = data if isinstance(data, bytes) else b""
                yield str(digest), content, seq if isinstance(seq, int) else 0
