"""Times as people write them, in the format of records. Pure, but for the clock."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from fumehood.audit.records import timestamp
from fumehood.errors import UsageError
from fumehood.policy import parse_duration

_DAY_SECONDS = 24 * 3600


def moment(text: str, name: str) -> str:
    """`name` says in an error what the text is."""
    try:
        if text.endswith("d") and text[:-1].isdigit():
            return timestamp(time.time() - int(text[:-1]) * _DAY_SECONDS)
        if text[:1].isdigit() and "-" not in text:
            return timestamp(time.time() - parse_duration(text))
        # What people write is the time on their wall.
        found = datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        raise UsageError(f"{name} {text!r} is not a time: write 2026-01-31, 2026-01-31T09:30, 90m, 2h or 30d") from None
    return found.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
