"""A record in words: one line for what matters of it, and every value in full.

The one place where what programs, models and users wrote is made harmless. Names of files and messages are in records
as they were given. Every text in them becomes one line without anything that a terminal obeys, that hides or that
stands elsewhere than it seems; nothing else is shown.
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


_ID_CHARACTERS = 12
_DIGEST_CHARACTERS = 12
TROUBLES = frozenset({"request.denied", "sandbox.refused", "run.broke", "grant.denied", "message.dead"})
"""Kinds of records that say that something did not happen."""


def summary(record: Shown) -> str:
    """What matters of it, in one line. Of a record that is not as its kind has them, everything."""
    try:
        return _summary(record)
    except (TypeError, ValueError, AttributeError, KeyError, ArithmeticError):
        return _everything(record.data)


def _summary(record: Shown) -> str:
    data = record.data
    match record.kind:
        case "sandbox.opened":
            return f"{data.get('policy_name') or 'policy'} {_short(data.get('policy_digest'))}, {data.get('backend')}"
        case "run.requested":
            return _requested(data)
        case "run.finished":
            return _finished(data)
        case "file.in" | "file.out":
            return f"{data.get('path')}, {_size(data.get('size'))}, {_short(data.get('sha256'))}"
        case "file.begun" | "file.broken":
            return f"{data.get('path')}, {_size(data.get('size'))}"
        case "file.removed":
            return f"{data.get('path')}, at {data.get('target')}"
        case "artifacts.found":
            found = cast("list[dict[str, Any]]", data.get("artifacts", []))
            return data.get("problem") or ", ".join(str(artifact.get("path")) for artifact in found)
        case "message.sent" | "message.published":
            return _message(data)
        case "grant.denied":
            return f"{record.ids.get('agent')} may not {data.get('action')} {data.get('target')}"
        case "task.started":
            return f"{data.get('name')}, {data.get('model')}"
        case "task.ended":
            return f"{data.get('name')}, {data.get('stop')}" + (f": {data['detail']}" if "detail" in data else "")
        case "tool.called" | "tool.returned" | "tool.refused":
            told = data.get("status") or data.get("reason") or f"risk {data.get('risk')}, {_short(data.get('digest'))}"
            return f"{data.get('tool')}, {told}"
        case kind if kind.startswith("approval."):
            return _approval(data)
        case "snapshot.made" | "snapshot.restored" | "snapshot.removed":
            return f"{data.get('name') or data.get('sandbox_name') or 'unnamed'}, {_short(data.get('snapshot'))}"
        case "sandbox.created" | "sandbox.saved" | "sandbox.removed" | "sandbox.exported":
            place = data.get("target") or data.get("source")
            return f"{data.get('name')}, {_short(data.get('snapshot'))}" + (f", {place}" if place else "")
        case "sandbox.policy":
            return f"{data.get('name')}, {_short(data.get('old_digest'))} -> {_short(data.get('policy_digest'))}"
        case "egress.denied" | "egress.allowed":
            return _egress(data)
        case "request.denied" | "sandbox.refused":
            return str(data["reason"])
        case "model.answered":
            calls = ", ".join(map(str, cast("list[object]", data.get("calls", []))))
            tokens = f"{data['input_tokens']} + {data['output_tokens']} tokens"
            cost = dollars(data["cost_microdollars"]) if data.get("cost_microdollars") else ""
            return ", ".join(
                part for part in (f"calls {calls}" if calls else "", tokens, cost, str(data["model"])) if part
            )
        case "console.viewed":
            return f"{data['what']} {data['subject']}" + (f" of {data['of']}" if "of" in data else "")
        case "log.checkpoint":
            return f"signed by {_short(data.get('key'))}"
        case _:
            return _everything(data)


def dollars(microdollars: int) -> str:
    """As exact as it is worth while."""
    if not microdollars:
        return "$0"
    amount = microdollars / 1_000_000
    return f"${amount:,.2f}" if amount >= 100 else f"${amount:.4f}"


def in_full(value: object) -> str:
    """A value with whole digests."""
    return _value(value, digest_characters=None)


def attachment_of(value: object) -> str | None:
    """Under which digest the log keeps this, if it does."""
    return cast("dict[str, Any]", value).get("stored") if isinstance(value, dict) else None


def _everything(data: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_value(value)}" for name, value in data.items())


def _egress(data: Mapping[str, Any]) -> str:
    times = f", {data['count']} times" if data.get("count", 1) != 1 else ""
    why = f": {data['reason']}" if "reason" in data else ""
    return f"{data['what']}{why}{times}"


def _approval(data: Mapping[str, Any]) -> str:
    parts = [str(data.get("tool")), str(data.get("request"))[:_ID_CHARACTERS], _short(data.get("digest"))]
    parts += [f"by {data['by']}"] if "by" in data else []
    parts += [f"{data['verdict']} by reviewer {data.get('reviewer')}"] if "verdict" in data else []
    parts += [f"became {_short(data['approved_digest'])}"] if "approved_digest" in data else []
    return ", ".join([*parts, *([str(data["reason"])] if "reason" in data else [])])


def _message(data: Mapping[str, Any]) -> str:
    target = data.get("to") or data.get("topic")
    parts = [f"{data.get('type')} from {data.get('sender') or 'the application'} to {target}"]
    parts += [f"for {_value(data['recipients']) or 'no agent'}"] if "recipients" in data else []
    return ", ".join([*parts, *([_value(data["body"])] if "body" in data else [])])


def _requested(data: Mapping[str, Any]) -> str:
    what = data.get("command") or data.get("language")
    parts = [str(what), *([_value(data["code"])] if "code" in data else [])]
    if data.get("terminal"):
        parts.append(f"terminal {data['terminal']}")
    return ", ".join(parts)


def _finished(data: Mapping[str, Any]) -> str:
    parts = [str(data.get("status"))]
    if data.get("cause") not in ("exit", data.get("status")):
        parts[0] += f" ({data.get('cause')})"
    elif data.get("exit_code"):
        parts[0] += f" (exit {data['exit_code']})"
    if "duration_us" in data:
        parts.append(f"{data['duration_us'] / 1000:.0f} ms")
    if "peak_memory_bytes" in data:
        parts.append(_size(data["peak_memory_bytes"]))
    if "detail" in data:
        parts.append(str(data["detail"]))
    return ", ".join(parts)


def _value(value: object, digest_characters: int | None = _DIGEST_CHARACTERS) -> str:
    match value:
        case {"path": str(path), "sha256": str(digest), "size": int(size)}:
            return f"{path}, {_size(size)}, sha256 {digest[:digest_characters]}"
        case {"sha256": str(digest), "size": int(size)}:
            return f"{_size(size)}, sha256 {digest[:digest_characters]}"
        case dict():
            items = cast("dict[str, object]", value).items()
            return ", ".join(f"{name} {_value(item, digest_characters)}" for name, item in items)
        case list():
            return "; ".join(_value(item, digest_characters) for item in cast("list[object]", value))
        case bool():
            return "yes" if value else "no"
        case _:
            return str(value)


def _short(digest: object) -> str:
    return str(digest).removeprefix("sha256:")[:_DIGEST_CHARACTERS]


def _size(size: object) -> str:
    if not isinstance(size, int):
        return "? bytes"
    for unit, bytes_each in (("MiB", 1024 * 1024), ("KiB", 1024)):
        if size >= 10 * bytes_each:
            return f"{size // bytes_each} {unit}"
    return f"{size} bytes"
