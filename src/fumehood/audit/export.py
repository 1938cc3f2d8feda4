"""The log as JSON lines: complete, so that an export can be verified like the log itself."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import cast

from fumehood.audit.records import Record, canonical, read_record
from fumehood.errors import UsageError


def lines(records: Iterable[Record]) -> Iterator[str]:
    for record in records:
        yield f'{{"hash":"{record.hash.hex()}","record":{record.body}}}\n'


def read_lines(path: Path) -> Iterator[Record]:
    """What `lines` wrote. A line that is none is an error that names it: an export is verified, not guessed at."""
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                yield _read_line(line, f"{path}:{number}")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read as an export of an audit log: {error}") from error


def _read_line(line: str, place: str) -> Record:
    try:
        fields: object = json.loads(line)
        match fields:
            case {"hash": str(digest), "record": dict()}:
                body = canonical(cast("dict[str, object]", cast("dict[str, object]", fields)["record"]))
                return read_record(body, bytes.fromhex(digest))
            case _:
                raise ValueError("it has no hash and record")
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{place}: not a line of an export of an audit log: {error}") from error
