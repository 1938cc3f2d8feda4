"""The file service for a caller that is not trusted: each request is judged by the policy, and each transfer recorded.

It lies between a caller elsewhere and the service inside. `AsyncFiles` judges for callers in this process, which could
speak to the service themselves; here nothing but what is listed gets through.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from fumehood.backends.interface import Conversation
from fumehood.errors import UsageError
from fumehood.policy.filesystem import Outputs
from fumehood.sandbox.audit import FileAudit
from fumehood.sandbox.files.artifacts import ArtifactTracker
from fumehood.sandbox.files.download import check_output
from fumehood.sandbox.files.paths import sandbox_path
from fumehood.sandbox.files.protocol import stored_file

_KEYS = {
    "write": {"executable": bool, "as_program": bool, "last": bool, "sha256": str},
    "read": {"limit": int, "links": bool, "saves": bool},
    "list": {"limit": int, "links": bool},
    "stat": {"follow": bool, "links": bool},
    "remove": {"recursive": bool},
    "rename": {"to": str},
    "mkdir": {"parents": bool},
    "link": {"target": str},
    "watch": {"recursive": bool},
    "changes": {"wait": float},
}
_CONTINUATION = {"last": bool, "sha256": str}
_WITHOUT_PATH = frozenset({"changes"})
_MOST_PENDING = 64


class _Exchange:
    """A request on its way, and what has been read for it so far."""

    def __init__(self, action: str, path: str) -> None:
        self.action, self.path = action, path
        self.size, self.digest = 0, hashlib.sha256()


class FileGate:
    """A `Conversation` of its own, around the one with the service. Leaving the block writes what is to be recorded."""

    def __init__(
        self, inner: Conversation, audit: FileAudit, artifacts: ArtifactTracker, outputs: Outputs, *, keeps_tmp: bool
    ) -> None:
        self._inner, self._audit, self._artifacts = inner, audit, artifacts
        self._outputs, self._keeps_tmp = outputs, keeps_tmp
        self._pending: deque[_Exchange] = deque()
        self._writes = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """What was sent of a file before the caller hung up has left, too."""
        for exchange in self._pending:
            if exchange.size:
                self._audit.fetched(exchange.path, exchange.size, exchange.digest.hexdigest())
        if self._pending:
            self._inner.abandon()
        await self._audit.write()

    async def send(self, header: Mapping[str, Any], body: bytes | memoryview = b"") -> None:
        await self._inner.send(self._continued(header) if self._writes else self._judged(header), body)

    def _continued(self, header: Mapping[str, Any]) -> dict[str, Any]:
        checked = _checked(header, _CONTINUATION)
        self._writes = not checked.get("last")
        return checked

    def _judged(self, header: Mapping[str, Any]) -> dict[str, Any]:
        """Its own copy of the request, with the path in the one spelling."""
        action = header.get("do")
        if not isinstance(action, str) or action not in _KEYS:
            raise UsageError(f"the file service is not asked to {action!r} from elsewhere")
        if len(self._pending) >= _MOST_PENDING:
            raise UsageError(f"more than {_MOST_PENDING} requests at once for the file service")
        details = {key: value for key, value in header.items() if key not in ("do", "path") and value is not None}
        request = {"do": action, **_checked(details, _KEYS[action])}
        path = ""
        if action not in _WITHOUT_PATH:
            path = request["path"] = self._place(header.get("path"))
        if action == "rename":
            request["to"] = self._place(request.get("to"))
        if action == "read":
            check_output(self._outputs, path)
            request["saves"] = False
        self._writes = action == "write" and not request.get("last")
        self._pending.append(_Exchange(action, path))
        return request

    def _place(self, path: object) -> str:
        if not isinstance(path, str):
            raise UsageError("a request for the file service has no path")
        return sandbox_path(path, keeps_tmp=self._keeps_tmp)

    async def receive(self) -> tuple[dict[str, Any], bytes]:
        header, body = await self._inner.receive()
        if not self._pending:
            raise UsageError("the file service answered what was not asked")
        exchange = self._pending[0]
        if "data" in header:
            exchange.size += len(body)
            exchange.digest.update(body)
        elif "done" in header:
            await self._conclude(exchange, header["done"])
            self._pending.popleft()
        elif "error" in header:
            self._pending.popleft()
        return header, body

    async def _conclude(self, exchange: _Exchange, done: dict[str, Any]) -> None:
        """A file that leaves is on record before its receiver learns that it is whole."""
        if exchange.action == "write":
            stored = stored_file(done)
            self._artifacts.stored(exchange.path, stored)
            await self._audit.stored(exchange.path, stored.size, str(done.get("sha256")))
        elif exchange.action == "read":
            self._audit.fetched(exchange.path, exchange.size, exchange.digest.hexdigest())
            exchange.size = 0
            await self._audit.write()

    def abandon(self) -> None:
        self._inner.abandon()


def _checked(header: Mapping[str, Any], kinds: Mapping[str, type]) -> dict[str, Any]:
    for key, value in header.items():
        kind = kinds.get(key)
        if kind is None or not (type(value) is kind or (kind is float and type(value) is int)):
            raise UsageError(f"{key!r} is not for the file service, or is not what it should be")
    return dict(header)
