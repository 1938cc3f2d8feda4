"""A record as it may be shown: the one place where what programs, models and users wrote is made harmless.

Names of files and messages are in records as they were given. Every text in them becomes one line without anything that
a terminal obeys, that hides or that stands elsewhere than it seems; nothing else is printed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from fumehood.audit.records import Record
from fumehood.characters import TAB, one_line

Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Shown:
    time: datetime | None
    """The local time; None when the record was changed and has no valid time."""
    kind: str
    run_id: str | None
    sandbox_id: str | None
    who: str
    ids: Fields
    data: Fields

    @classmethod
    def of(cls, record: Record) -> Shown:
        fields = record.parse()
        return cls(
            time=_local(record.time),
            kind=one_line(record.kind),
            run_id=None if record.run_id is None else one_line(record.run_id),
            sandbox_id=None if record.sandbox_id is None else one_line(record.sandbox_id),
            who=one_line(str(fields.get("who", "?"))),
            ids=_mapping(fields.get("ids")),
            data=_mapping(fields.get("data")),
        )

    @property
    def day(self) -> str:
        return self.time.strftime("%Y-%m-%d") if self.time else "????-??-??"

    @property
    def clock(self) -> str:
        return self.time.strftime("%H:%M:%S.%f")[:12] if self.time else "??:??:??.???"


def text_lines(data: bytes) -> list[str]:
    """Code or output, line by line."""
    lines = data.decode("utf-8", "backslashreplace").removesuffix("\n").split("\n")
    return [TAB.join(map(one_line, line.split("\t"))) for line in lines]


def _mapping(value: object) -> Fields:
    try:
        fields = _harmless(value)
    except RecursionError:
        return {}
    return cast("Fields", fields) if isinstance(fields, dict) else {}


def _harmless(value: object) -> object:
    match value:
        case str():
            return one_line(value)
        case dict():
            return {one_line(name): _harmless(item) for name, item in cast("dict[str, object]", value).items()}
        case list():
            return [_harmless(item) for item in cast("list[object]", value)]
        case _:
            return value


def _local(moment: str) -> datetime | None:
    try:
        return datetime.fromisoformat(moment).astimezone()
    except (ValueError, OverflowError, OSError):
        return None
