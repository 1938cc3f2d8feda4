"""Records of one run: requested, started, output, finished or failed."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Self

import anyio

from fumehood.audit.events import (
    Attachment,
    AuditEvent,
    Content,
    Digest,
    RunBroke,
    RunFinished,
    RunRequested,
    RunStarted,
    as_content,
)
from fumehood.audit.records import Entry
from fumehood.audit.trace_context import current_trace
from fumehood.audit.trail import Trail
from fumehood.backends.interface import Input, RunRequest
from fumehood.errors import AuditError
from fumehood.events import Stderr, Stdout
from fumehood.policy import Audit
from fumehood.policy.audit import Kept
from fumehood.results import Cause, Display, RunResult, Status
from fumehood.tenant import RunMeter

EgressEvents = Callable[[], Iterable[AuditEvent]]
"""What the run's connections have become so far."""

_STDIN, _STDOUT, _STDERR = 0, 1, 2
_MOST_DISPLAYED = 100
_MOST_TYPE_CHARACTERS = 100


class RunAudit:
    """`async with`: the block is the run, or the start of one in the background.

    The request is on record before the block begins; an error that ends the block is recorded too.
    """

    def __init__(
        self,
        trail: Trail,
        keep: Audit,
        request: RunRequest,
        egress: EgressEvents = tuple,
        held: list[Entry] | None = None,
        meter: RunMeter | None = None,
    ) -> None:
        """`held` is written with the request, and emptied; `meter` is asked before that."""
        self._request = request
        self._held = [] if held is None else held
        self.run_id = f"run_{os.urandom(8).hex()}"
        trace = current_trace()
        self._trail = trail.within(run=self.run_id) if trace is None else trail.within(run=self.run_id, trace=trace)
        self._keep = keep
        self._started: Entry | None = None
        self._is_over = not trail.is_on
        self._withheld: AuditError | None = None
        """Why the result is not given, also not to those who ask again."""
        self._egress = egress
        self._meter, self._began = meter, 0.0
        self._streams: dict[int, StreamCapture] = {}
        """The captures of streams that had a byte, by number; stream 0 is input that was written live."""
        self._displayed: list[Mapping[str, object]] = []
        self._display_number = self._omitted = 0

    async def __aenter__(self) -> Self:
        if self._meter is not None:
            self._meter.begin()
            self._began = time.monotonic()
        try:
            await self.requested()
        except BaseException:
            self._settle(None)
            raise
        return self

    def _settle(self, result: RunResult | None) -> None:
        meter, self._meter = self._meter, None
        if meter is not None and self._began:
            meter.end(self.run_id, result, time.monotonic() - self._began)

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is not None:
            await self.failed(error)

    async def requested(self) -> None:
        if self._trail.is_on:
            await write_after(self._held, self._trail, _requested(self._request, self._keep))

    def follow(self, egress: EgressEvents) -> None:
        """Egress events are written with the run's end, and before it."""
        self._egress = egress

    def started(self) -> None:
        """Written with the next record, or by `write_started`: the request is on record already."""
        if self._trail.is_on:
            self._started = self._trail.stamp(RunStarted())

    async def write_started(self) -> None:
        """Writes the record of the start now, for a run that goes on: its next record may be far away."""
        if self._started is not None:
            started, self._started = self._started, None
            await self._trail.write(started)

    def output(self, event: Stdout | Stderr | Display) -> None:
        match event:
            case Stdout(data):
                self.stdout(data)
            case Stderr(data):
                self.stderr(data)
            case Display():
                self.display(event)

    def stdin(self, data: bytes) -> None:
        """Input that the caller writes while the program runs."""
        self._capture(_STDIN, data, self._keep.code)

    def stdout(self, data: bytes) -> None:
        self._capture(_STDOUT, data, self._keep.output)

    def stderr(self, data: bytes) -> None:
        self._capture(_STDERR, data, self._keep.output)

    def display(self, *displays: Display) -> None:
        """Output too: values and figures, in every media type that the session gave."""
        if not self._trail.is_on or self._keep.output == "none":
            return
        for each in displays:
            self._display_number += 1
            for media_type, value in each.data.items():
                if len(self._displayed) == _MOST_DISPLAYED:
                    self._omitted += 1
                    continue
                content = as_content(_displayed_bytes(value), self._keep.output)
                about = {"display": self._display_number, "type": media_type[:_MOST_TYPE_CHARACTERS]}
                self._displayed.append({**about, "content": content})

    def _capture(self, stream: int, data: bytes, kept: Kept) -> None:
        if not data or not self._trail.is_on:
            return
        if stream not in self._streams:
            self._streams[stream] = StreamCapture(kept)
        self._streams[stream].write(data)

    def _content(self, stream: int) -> Content:
        return self._streams[stream].content() if stream in self._streams else None

    async def finished(self, result: RunResult, more: Callable[[], Iterable[Entry]] = tuple) -> RunResult:
        """The same result, once it is recorded, together with `more`, which comes after it."""
        self._settle(result)
        if self._withheld is not None:
            raise self._withheld
        if self._is_over:
            return result
        try:
            await self._end(self._finished(result), more)
        except AuditError as error:
            self._withheld = error
            # The result is withheld. Where there is no room for all of it there may be room for that.
            with anyio.CancelScope(shield=True):
                await self._write_or_defer(RunBroke(type(error).__name__, str(error)))
            raise
        return result

    async def failed(self, error: BaseException | None) -> None:
        """Cancelled, left early, or a failure of the sandbox. An error of the log does not replace that error."""
        self._settle(None)
        with anyio.CancelScope(shield=True):
            end = RunBroke(type(error).__name__, str(error)) if isinstance(error, Exception) else self._cancelled()
            try:
                await self._end(end)
            except AuditError:
                await self._write_or_defer(end)

    async def _write_or_defer(self, event: AuditEvent) -> None:
        """The end of a run whose result no caller gets. If the log cannot be written, it is when it can be again."""
        end = (*self._pending_start(), self._trail.stamp(event))
        try:
            await self._trail.write(*end)
        except AuditError:
            if self._trail.log is not None:
                self._trail.log.defer(end)

    def _finished(self, result: RunResult) -> RunFinished:
        return RunFinished(
            status=result.status,
            cause=result.cause,
            exit_code=result.exit_code,
            signal=result.signal,
            detail=result.detail or None,
            duration_us=round(result.duration_ms * 1000),
            cpu_us=round(result.cpu_ms * 1000),
            peak_memory_bytes=result.peak_memory_bytes,
            truncated=result.truncated or None,
            stdin=self._content(_STDIN),
            stdout=self._content(_STDOUT),
            stderr=self._content(_STDERR),
            displays=tuple(self._displayed) or None,
            displays_omitted=self._omitted or None,
        )

    def _cancelled(self) -> RunFinished:
        unknown = (None,) * 7
        streams = map(self._content, (_STDIN, _STDOUT, _STDERR))
        return RunFinished(Status.CANCELLED, Cause.CANCELLED, *unknown, *streams)

    async def _end(self, event: AuditEvent, more: Callable[[], Iterable[Entry]] = tuple) -> None:
        if self._is_over:
            return
        self._is_over = True
        await self._trail.write(*self._pending_start(), *self._egress(), self._trail.stamp(event), *more())

    def _pending_start(self) -> tuple[Entry, ...]:
        return () if self._started is None else (self._started,)


async def write_after(held: list[Entry], trail: Trail, *events: AuditEvent | Entry) -> None:
    """Writes the held records and these together, and holds no records any more."""
    await trail.write(*held, *events)
    held.clear()


class StreamCapture:
    """What the policy lets the log keep of one stream: nothing, a digest, or all of it."""

    def __init__(self, kept: Kept) -> None:
        self._data = bytearray() if kept == "full" else None
        self._digest = hashlib.sha256() if kept == "digest" else None
        self._size = 0

    def write(self, data: bytes) -> None:
        if self._data is not None:
            self._data += data
        elif self._digest is not None:
            self._digest.update(data)
            self._size += len(data)

    def content(self) -> Content:
        if self._data is not None:
            return Attachment(bytes(self._data))
        return None if self._digest is None else Digest(self._digest.hexdigest(), self._size)


def _displayed_bytes(value: object) -> bytes:
    """A display has text, bytes, or plain data for JSON."""
    if isinstance(value, bytes):
        return value
    text = value if isinstance(value, str) else json.dumps(value)
    return text.encode("utf-8", "backslashreplace")


def printable(path: str) -> str:
    """A record holds text: bytes of a name that are not UTF-8 are written as escapes."""
    return path if path.isascii() else path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _requested(request: RunRequest, keep: Audit) -> RunRequested:
    words = os.fsencode("\0".join(request.arguments))
    is_command, size = request.source is None, request.terminal
    return RunRequested(
        language=request.language,
        command=printable((*(request.interpreter or ()), *request.arguments)[0]) if is_command else None,
        code=_content(words if request.source is None else request.source, keep.code),
        arguments=None if is_command else _content(words, keep.code),
        stdin=_stdin(request, keep.code),
        environment=tuple(sorted(request.environment)) or None,
        cwd=printable(request.cwd) or None,
        timeout_ms=round(request.timeout_seconds * 1000),
        terminal=None if size is None else f"{size.columns}x{size.rows}",
    )


def _content(data: bytes, kept: Kept) -> Content:
    return as_content(data, kept) if data else None


def _stdin(request: RunRequest, kept: Kept) -> Content | str:
    match request.stdin:
        case bytes(data):
            return _content(data, kept)
        case Input.LIVE:
            return "live"
        case int():
            return "descriptor"
        case None:
            return None
