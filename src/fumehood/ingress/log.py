"""What was asked of a published port and what was refused, counted until it is written to the audit log."""

from __future__ import annotations

from collections.abc import Iterator

from fumehood.audit.events import AuditEvent
from fumehood.egress.limits import TokenBucket
from fumehood.frozen import frozen

_MOST_DIFFERENT = 1024
_MOST_A_SECOND = 8.0
_MOST_METHOD_CHARACTERS, _MOST_PATH_CHARACTERS = 32, 512
_OTHERS = "others"


@frozen
class PortExposed(AuditEvent):
    """A port of the sandbox can be reached at an address of the host's loopback from here on."""

    kind = "port.exposed"

    port: int
    address: str


@frozen
class PortClosed(AuditEvent):
    kind = "port.closed"

    port: int


@frozen
class PortRequests(AuditEvent):
    """Requests with a valid token, as many as `count` says; a WebSocket counts when it opens, and when it ends."""

    kind = "port.requests"

    port: int
    method: str
    path: str
    """Without its query."""
    status: int
    count: int
    bytes_in: int
    bytes_out: int


@frozen
class PortDenied(AuditEvent):
    """Requests that were refused and did not reach the sandbox."""

    kind = "port.denied"

    port: int
    reason: str
    count: int


class PortLog:
    """Bounded: of requests that are too many to tell apart, the number and the bytes remain.

    A page inside can send any number of them, with the cookie of the person who looks at it.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._different = TokenBucket(_MOST_DIFFERENT, _MOST_A_SECOND)
        self._requests: dict[tuple[str, str, int], tuple[int, int, int]] = {}
        self._denials: dict[str, int] = {}

    def served(self, method: str, target: str, status: int, bytes_in: int, bytes_out: int) -> None:
        key = method[:_MOST_METHOD_CHARACTERS], target.partition("?")[0][:_MOST_PATH_CHARACTERS], status
        if key not in self._requests and not self._different.take():
            key = _OTHERS, _OTHERS, 0
        count, before_in, before_out = self._requests.get(key, (0, 0, 0))
        self._requests[key] = count + 1, before_in + bytes_in, before_out + bytes_out

    def refused(self, reason: str) -> None:
        """Reasons are ours, and few."""
        self._denials[reason] = self._denials.get(reason, 0) + 1

    def take(self) -> list[AuditEvent]:
        """What has happened since the last call."""
        requests, denials = self._requests, self._denials
        self._requests, self._denials = {}, {}
        return list(self._events(requests, denials))

    def _events(
        self, requests: dict[tuple[str, str, int], tuple[int, int, int]], denials: dict[str, int]
    ) -> Iterator[AuditEvent]:
        for (method, path, status), (count, bytes_in, bytes_out) in requests.items():
            yield PortRequests(self._port, method, path, status, count, bytes_in, bytes_out)
        for reason, count in denials.items():
            yield PortDenied(self._port, reason, count)
