"""The log as JSON lines, first the records and then what is attached to them: complete, so that it can be verified."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import cast

from fumehood.audit.records import Record, canonical, read_record
from fumehood.errors import UsageError


def lines(records: Iterable[Record], attachment: Callable[[str], bytes | None]) -> Iterator[str]:
    """`attachment` finds what is attached under a digest."""
    attached: dict[str, None] = {}
    for record in records:
        yield _record_line(record)
        attached.update(dict.fromkeys(record.stored))
    for digest in attached:
        data = attachment(digest)
        if data is not None:
            yield _attachment_line(digest, data)


def _record_line(record: Record) -> str:
    return f'{{"hash":"{record.hash.hex()}","record":{record.body}}}\n'


def _attachment_line(digest: str, data: bytes) -> str:
    return json.dumps({"attachment": digest, "data": b64encode(data).decode()}) + "\n"


class Export:
    """A file as `lines` writes it, read once from its beginning to its end: so it may be a pipe."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rest = _read(path)
        self._first_attachment: list[tuple[str, bytes]] = []

    def records(self) -> Iterator[Record]:
        for line in self._rest:
            if not isinstance(line, Record):
                self._first_attachment.append(line)
                return
            yield line

    def attachments(self) -> Iterator[tuple[str, bytes]]:
        """Behind all records, which are skipped if they were not read."""
        while not self._first_attachment and next(self.records(), None) is not None:
            pass
        for line in chain(self._first_attachment, self._rest):
            if isinstance(line, Record):
                raise UsageError(f"{self._path}: an export has all records first, and record {line.seq} comes later")
            yield line


def _read(path: Path) -> Iterator[Record | tuple[str, bytes]]:
    """A line that is none of `lines` is an error that names it: an export is verified, not guessed at."""
    try:
        with path.open(encoding="utf-8", newline="\n") as file:
            for number, line in enumerate(file, 1):
                yield _read_line(line, f"{path}:{number}")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read as an export of an audit log: {error}") from error


def _read_line(line: str, place: str) -> Record | tuple[str, bytes]:
    """Exactly as it is written: of a key that occurs twice, other readers may see the other one."""
    try:
        read, written = _parse(json.loads(line))
        if line != written:
            raise ValueError("it says something else, or in another way, than what was written")
        return read
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{place}: not a line of an export of an audit log: {error}") from error


def _parse(fields: object) -> tuple[Record | tuple[str, bytes], str]:
    """What a line holds, and the line that `lines` makes of that."""
    match fields:
        case {"hash": str(digest), "record": dict()}:
            record = cast("dict[str, dict[str, object]]", fields)["record"]
            found = read_record(canonical(record), bytes.fromhex(digest))
            return found, _record_line(found)
        case {"attachment": str(digest), "data": str(data)}:
            content = b64decode(data, validate=True)
            return (digest, content), _attachment_line(digest, content)
        case _:
            raise ValueError("it has neither hash and record nor attachment and data")
