"""The log as JSON lines, first the records and then what is attached to them: complete, so that it can be verified."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import cast

from fumehood.audit.records import Record, canonical, read_record
from fumehood.errors import UsageError


def lines(records: Iterable[Record], attachment: Callable[[str], bytes | None]) -> Iterator[str]:
    """`attachment` finds what is attached under a digest."""
    attached: dict[str, None] = {}
    for record in records:
        yield f'{{"hash":"{record.hash.hex()}","record":{record.body}}}\n'
        attached.update(dict.fromkeys(record.stored))
    for digest in attached:
        data = attachment(digest)
        if data is not None:
            yield json.dumps({"attachment": digest, "data": b64encode(data).decode()}) + "\n"


def read_records(path: Path) -> Iterator[Record]:
    return (line for line in _read(path) if isinstance(line, Record))


def read_attachments(path: Path) -> Iterator[tuple[str, bytes]]:
    return (line for line in _read(path) if not isinstance(line, Record))


def _read(path: Path) -> Iterator[Record | tuple[str, bytes]]:
    """A line that is none of `lines` is an error that names it: an export is verified, not guessed at."""
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                yield _read_line(line, f"{path}:{number}")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read as an export of an audit log: {error}") from error


def _read_line(line: str, place: str) -> Record | tuple[str, bytes]:
    try:
        fields: object = json.loads(line)
        match fields:
            case {"hash": str(digest), "record": dict()}:
                body = canonical(cast("dict[str, object]", cast("dict[str, object]", fields)["record"]))
                return read_record(body, bytes.fromhex(digest))
            case {"attachment": str(digest), "data": str(data)}:
                return digest, b64decode(data, validate=True)
            case _:
                raise ValueError("it has neither hash and record nor attachment and data")
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{place}: not a line of an export of an audit log: {error}") from error
