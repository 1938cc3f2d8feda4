"""Results, events and entries as a header and bytes, and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

from fumehood.errors import LostError
from fumehood.guest.contract.frames import Header
from fumehood.results import Artifact, Cause, Denial, Display, RunResult, Status

if TYPE_CHECKING:
    from fumehood.sandbox.installation import Installation
    from fumehood.snapshots import Snapshot

_BYTES = "bytes"
_KINDS_OF: dict[str, Any] = {
    "exit_code": int,
    "truncated": bool,
    "duration_ms": int | float,
    "cpu_ms": int | float,
    "peak_memory_bytes": int,
    "run_id": str,
    "policy_digest": str,
    "image_digest": str | None,
    "signal": str | None,
    "detail": str,
    "restarted": bool,
}
_DIRECT = tuple(_KINDS_OF)
_COUNTS = ("duration_ms", "cpu_ms", "peak_memory_bytes")
# What every table and sum takes; NaN is not between them.
_LEAST, _MOST = -(2**53), 2**53


class _Body:
    """The bytes of a message, of which its header has places."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0

    def add(self, data: bytes) -> list[int]:
        self._pieces.append(data)
        self._size += len(data)
        return [self._size - len(data), self._size]

    def content(self) -> bytes:
        return b"".join(self._pieces)


def pack_result(result: RunResult) -> tuple[Header, bytes]:
    body = _Body()
    return _result_header(result, body), body.content()


def _result_header(result: RunResult, body: _Body) -> Header:
    header: Header = {name: getattr(result, name) for name in _DIRECT}
    return header | {
        "status": result.status,
        "cause": result.cause,
        "stdout": body.add(result.stdout_bytes),
        "stderr": body.add(result.stderr_bytes),
        "displays": [_display_header(display, body) for display in result.displays],
        "artifacts": [asdict(artifact) for artifact in result.artifacts],
        "denials": [asdict(denial) for denial in result.denials],
        "compilation": _result_header(result.compilation, body) if result.compilation else None,
    }


def unpack_result(header: Header, body: bytes) -> RunResult:
    with _complete("a result"):
        return _result(header, body)


def _result(header: Header, body: bytes) -> RunResult:
    compilation = header["compilation"]
    return RunResult(
        status=Status(header["status"]),
        cause=Cause(header["cause"]),
        stdout_bytes=_piece(header["stdout"], body),
        stderr_bytes=_piece(header["stderr"], body),
        displays=tuple(_display(each, body) for each in header["displays"]),
        artifacts=tuple(Artifact(**each) for each in header["artifacts"]),
        denials=tuple(Denial(**each) for each in header["denials"]),
        compilation=_result(compilation, body) if compilation else None,
        **{name: _direct(name, header[name]) for name in _DIRECT},
    )


def _direct(name: str, value: Any) -> Any:
    """Others add numbers up and show texts: what is neither would fail there, or make a sum useless."""
    if not isinstance(value, _KINDS_OF[name]) or (isinstance(value, int | float) and not _LEAST <= value <= _MOST):
        raise ValueError(f"{name} is not what it should be")
    if name in _COUNTS and value < 0:
        raise ValueError(f"{name} is below zero")
    return value


def pack_display(display: Display) -> tuple[Header, bytes]:
    body = _Body()
    return _display_header(display, body), body.content()


def _display_header(display: Display, body: _Body) -> Header:
    data = {
        kind: {_BYTES: body.add(value)} if isinstance(value, bytes) else {"plain": value}
        for kind, value in display.data.items()
    }
    return {"data": data, "metadata": dict(display.metadata)}


def unpack_display(header: Header, body: bytes) -> Display:
    with _complete("a display"):
        return _display(header, body)


def _display(header: Header, body: bytes) -> Display:
    given = cast("Mapping[str, Mapping[str, Any]]", header["data"])
    data = {kind: _piece(value[_BYTES], body) if _BYTES in value else value["plain"] for kind, value in given.items()}
    return Display(data, header["metadata"])


def _piece(place: list[int], body: bytes) -> bytes:
    start, end = place
    if not 0 <= start <= end <= len(body):
        raise ValueError("a piece that is not there")
    return body[start:end]


def unpack_snapshot(header: Header) -> Snapshot:
    from fumehood.snapshots import Snapshot

    with _complete("a snapshot"):
        skipped: Header = {"skipped": tuple(header["skipped"])}
        return Snapshot(**{**header, **skipped})


def unpack_installation(header: Header) -> Installation:
    from fumehood.sandbox.installation import Installation

    with _complete("an installation"):
        return Installation(tuple(header["installed"]), tuple(header["removed"]), header["output"])


def text_of(header: Header, name: str) -> str:
    with _complete("an answer"):
        value = header[name]
        if not isinstance(value, str):
            raise TypeError(f"{name} is not text")
        return value


@contextmanager
def _complete(what: str) -> Iterator[None]:
    """LostError if something of it is missing, or is not what it should be: what the server says cannot be used."""
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        raise LostError(f"the server sent {what} that is not complete: {error}") from error
