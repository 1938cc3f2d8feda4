"""What happens in a sandbox, told to the audit log: requests, outcomes and files become its events.

Owns the order of things: a run is recorded before it starts, and how it ended before anybody gets to know; when that
cannot be done the run does not start, or its result is not handed over.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Protocol, Self

import anyio

from fumehood.audit.events import (
    ArtifactsFound,
    Attachment,
    AuditEvent,
    Content,
    Digest,
    FileIn,
    FileOut,
    PolicyChanged,
    RequestDenied,
    RunBroke,
    RunFinished,
    RunRequested,
    RunStarted,
    SessionClosed,
    SessionOpened,
    as_content,
)
from fumehood.audit.records import Entry
from fumehood.audit.trail import OFF, Trail
from fumehood.backends.interface import Input, RunRequest
from fumehood.errors import AuditError, DeniedError
from fumehood.events import Stderr, Stdout
from fumehood.policy import Audit, Policy
from fumehood.policy.audit import Kept
from fumehood.policy.digest import canonical_meaning
from fumehood.results import Artifact, Cause, Display, RunResult, Status

_BATCH = 500
Telling = Callable[[], Iterable[AuditEvent]]


class Journal:
    """Of one sandbox."""

    def __init__(
        self, trail: Trail = OFF, keep: Audit | None = None, follow_out: Callable[[], Telling] | None = None
    ) -> None:
        """With `follow_out`, each run is followed on its way out from its beginning."""
        self._trail, self._keep, self._follow_out = trail, keep or Audit(), follow_out

    def run(self, request: RunRequest) -> RunEntry:
        """`async with`: the block is the run, or the start of one in the background."""
        entry = RunEntry(self._trail, self._keep, request)
        if self._follow_out is not None:
            entry.follow(self._follow_out())
        return entry

    def telling_denials(self, action: str) -> TellingDenials:
        return TellingDenials(self._trail, action)

    async def denied(self, result: RunResult) -> None:
        """A run that was refused before it began."""
        told = (RequestDenied("run", each.kind, str(each)) for each in result.denials)
        await self._trail.within(run=result.run_id).write(*told)

    async def policy_changed(self, policy: Policy) -> None:
        if self._trail.is_on:
            await self._trail.write(PolicyChanged(policy.digest, Attachment(canonical_meaning(policy))))

    def within_session(self, follow_out: Callable[[], Telling]) -> Journal:
        return Journal(self._trail.within(session=f"session_{os.urandom(8).hex()}"), self._keep, follow_out)

    async def session_opened(self) -> None:
        await self._trail.write(SessionOpened())

    async def session_closed(self) -> None:
        """Nothing is handed over any more: a log that cannot be written is the news of whatever comes next."""
        with anyio.CancelScope(shield=True), suppress(AuditError):
            await self._trail.write(SessionClosed())

    async def artifacts(self, run_id: str, found: tuple[Artifact, ...], problem: str | None) -> None:
        if found or problem is not None:
            told = tuple({"path": each.path, "size": each.size, "sha256": each.sha256} for each in found)
            await self._trail.within(run=run_id).write(ArtifactsFound(told, problem))

    @asynccontextmanager
    async def files(self) -> AsyncIterator[FileEntries]:
        """Collects what goes in or out. What is not written when the block ends, by an error too, is written then."""
        entries = FileEntries(self._trail)
        try:
            yield entries
        except BaseException:
            with anyio.CancelScope(shield=True), suppress(AuditError):
                await entries.write_what_went_in()
            raise
        await entries.write()


class TellingDenials:
    """`async with`: a refusal that ends the block is recorded."""

    def __init__(self, trail: Trail, action: str) -> None:
        self._trail, self._action = trail, action

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, DeniedError):
            await self._trail.write(RequestDenied(self._action, type(error).__name__, str(error)))


class FileEntries:
    """Files that are on their way: those that go in are there already, those that go out wait until they are told."""

    def __init__(self, trail: Trail) -> None:
        self._trail = trail
        self._pending: list[Entry] = []

    async def went_in(self, path: str, size: int, sha256: str) -> None:
        self._add(FileIn(_shown(path), size, sha256))
        if len(self._pending) >= _BATCH:
            await self.write()

    def goes_out(self, path: str, size: int, sha256: str, target: str | None = None) -> None:
        self._add(FileOut(_shown(path), size, sha256, target if target is None else _shown(os.path.abspath(target))))

    def _add(self, event: AuditEvent) -> None:
        if self._trail.is_on:
            self._pending.append(self._trail.stamp(event))

    async def write(self) -> None:
        for first in range(0, len(self._pending), _BATCH):
            await self._trail.write(*self._pending[first : first + _BATCH])
        self._pending.clear()

    async def write_what_went_in(self) -> None:
        """After a failure: what was to go out has not."""
        self._pending = [each for each in self._pending if each.kind == FileIn.kind]
        await self.write()


class RunEntry:
    """One run, from the wish to the verdict. The wish is on record before the block begins, and what breaks it too."""

    def __init__(self, trail: Trail, keep: Audit, request: RunRequest) -> None:
        self._request = request
        self.run_id = f"run_{os.urandom(8).hex()}"
        self._trail = trail.within(run=self.run_id)
        self._keep = keep
        self._started: Entry | None = None
        self._is_over = not trail.is_on
        self._abroad: Telling = tuple
        self._seen: dict[int, Witness] = {}
        """By number: the input that was written live, and what came out. Of what never had a byte there is none."""

    async def __aenter__(self) -> Self:
        if self._trail.is_on:
            await self._trail.write(_requested(self._request, self._keep))
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is not None:
            await self.broke_off(error)

    def follow(self, telling: Telling) -> None:
        """What happened on the way out is told with how the run ended, and before it."""
        self._abroad = telling

    def started(self) -> None:
        """Written with the next record, unless `tell_started` comes before: that it was asked for is known already."""
        if self._trail.is_on:
            self._started = self._trail.stamp(RunStarted())

    async def tell_started(self) -> None:
        """Of a run that is still under way: nobody knows when the next record comes."""
        if self._started is not None:
            started, self._started = self._started, None
            await self._trail.write(started)

    def saw(self, stream: int, data: bytes) -> None:
        """Output, as it comes."""
        self._take(stream, data, self._keep.output)

    def saw_event(self, event: Stdout | Stderr | Display) -> None:
        match event:
            case Stdout(data):
                self.saw(1, data)
            case Stderr(data):
                self.saw(2, data)
            case Display():
                pass

    def fed(self, data: bytes) -> None:
        """Live input."""
        self._take(0, data, self._keep.code)

    def _take(self, stream: int, data: bytes, kept: Kept) -> None:
        if not data or not self._trail.is_on:
            return
        if stream not in self._seen:
            self._seen[stream] = _WITNESSES[kept]()
        self._seen[stream].take(data)

    def _content(self, stream: int) -> Content:
        return self._seen[stream].content() if stream in self._seen else None

    async def concluded(self, result: RunResult) -> RunResult:
        """The same result, now that it is recorded."""
        if self._is_over:
            return result
        try:
            await self._end(self._finished(result))
        except AuditError as error:
            # The result is withheld. Where there is no room for all of it there may be for that.
            with anyio.CancelScope(shield=True), suppress(AuditError):
                await self._trail.write(*self._untold_start(), RunBroke(type(error).__name__, str(error)))
            raise
        return result

    async def broke_off(self, error: BaseException | None) -> None:
        """Cancelled, left early, or a failure of ours. What goes wrong here is not the news."""
        with anyio.CancelScope(shield=True), suppress(AuditError):
            if isinstance(error, Exception):
                await self._end(RunBroke(type(error).__name__, str(error)))
            else:
                await self._end(self._cancelled())

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
            stdin=self._content(0),
            stdout=self._content(1),
            stderr=self._content(2),
        )

    def _cancelled(self) -> RunFinished:
        told = (Status.CANCELLED, Cause.CANCELLED, None, None, None, None, None, None, None)
        return RunFinished(*told, *map(self._content, (0, 1, 2)))

    async def _end(self, *events: AuditEvent) -> None:
        if self._is_over:
            return
        self._is_over = True
        await self._trail.write(*self._untold_start(), *self._abroad(), *events)

    def _untold_start(self) -> tuple[Entry, ...]:
        return () if self._started is None else (self._started,)


class Witness(Protocol):
    """Remembers of a stream what the policy lets the log keep of it."""

    def take(self, data: bytes) -> None: ...

    def content(self) -> Content: ...


class _Blind:
    def take(self, data: bytes) -> None:
        pass

    def content(self) -> Content:
        return None


class _Digesting:
    def __init__(self) -> None:
        self._digest, self._size = hashlib.sha256(), 0

    def take(self, data: bytes) -> None:
        self._digest.update(data)
        self._size += len(data)

    def content(self) -> Content:
        return Digest(self._digest.hexdigest(), self._size)


class _Keeping:
    def __init__(self) -> None:
        self._data = bytearray()

    def take(self, data: bytes) -> None:
        self._data += data

    def content(self) -> Content:
        return Attachment(bytes(self._data))


_WITNESSES: dict[Kept, type[Witness]] = {"none": _Blind, "digest": _Digesting, "full": _Keeping}


def _content(data: bytes, kept: Kept) -> Content:
    return as_content(data, kept) if data else None


def _requested(request: RunRequest, keep: Audit) -> RunRequested:
    words = os.fsencode("\0".join(request.arguments))
    is_command, size = request.source is None, request.terminal
    return RunRequested(
        language=request.language,
        command=_shown((*(request.interpreter or ()), *request.arguments)[0]) if is_command else None,
        code=_content(words if request.source is None else request.source, keep.code),
        arguments=None if is_command else _content(words, keep.code),
        stdin=_stdin(request, keep.code),
        environment=tuple(sorted(request.environment)) or None,
        cwd=_shown(request.cwd) or None,
        timeout_ms=round(request.timeout_seconds * 1000),
        terminal=None if size is None else f"{size.columns}x{size.rows}",
    )


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


def _shown(path: str) -> str:
    """Bytes that are no text are shown as such: a record holds text."""
    return path if path.isascii() else path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
