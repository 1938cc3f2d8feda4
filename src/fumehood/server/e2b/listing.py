"""Lists of sandboxes in pages. The token of the next page says where it begins; it is no secret, and is checked."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from datetime import datetime
from urllib.parse import parse_qsl

from fumehood.errors import UsageError
from fumehood.frozen import frozen
from fumehood.server.sandboxes.records import SandboxRecord

_MOST = 100


@frozen
class ListQuery:
    metadata: Mapping[str, str]
    states: frozenset[str]
    template: str
    started_after: float
    newest_first: bool
    limit: int
    after: tuple[float, str] | None

    @classmethod
    def of(cls, query: Mapping[str, str]) -> ListQuery:
        limit = query.get("limit", str(_MOST))
        if not limit.isascii() or not limit.isdigit() or not 0 < int(limit[:6]) <= _MOST:
            raise UsageError(f"limit must be from 1 to {_MOST}")
        return cls(
            dict(parse_qsl(query.get("metadata", ""), keep_blank_values=True, max_num_fields=64)),
            frozenset(query.get("state", "running,paused").split(",")),
            query.get("template", ""),
            _moment(query.get("startedAfter", "")),
            query.get("order", "desc") != "asc",
            int(limit),
            _place(query.get("nextToken", "")),
        )

    def page(self, records: list[SandboxRecord]) -> tuple[list[SandboxRecord], str | None]:
        """What the page has, and the token of the next one."""
        chosen = sorted(filter(self._has, records), key=_key, reverse=self.newest_first)
        if self.after is not None:
            after = self.after
            chosen = [each for each in chosen if (_key(each) < after if self.newest_first else _key(each) > after)]
        page = chosen[: self.limit]
        return page, _token(page[-1]) if len(chosen) > self.limit else None

    def _has(self, record: SandboxRecord) -> bool:
        return (
            "running" in self.states
            and self.metadata.items() <= record.metadata.items()
            and self.template in ("", record.policy)
            and record.opened > self.started_after
        )


def _key(record: SandboxRecord) -> tuple[float, str]:
    return record.opened, record.id


def _token(record: SandboxRecord) -> str:
    return urlsafe_b64encode(f"{record.opened!r} {record.id}".encode()).decode()


def _place(token: str) -> tuple[float, str] | None:
    if not token:
        return None
    try:
        opened, _, identifier = urlsafe_b64decode(token.encode()).decode().partition(" ")
        return float(opened), identifier
    except ValueError:
        raise UsageError("nextToken is not a token of this server") from None


def _moment(text: str) -> float:
    if not text:
        return 0.0
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise UsageError("startedAfter must be a time such as 2026-01-01T00:00:00Z") from None
