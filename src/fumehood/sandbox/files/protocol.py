"""One request to the file service and its answers. Knows the protocol, and neither policies nor local files.

An exchange that breaks off anywhere, by cancellation too, abandons the conversation: messages in flight
are not read by a later exchange. A `FileRefusal` ends an exchange and leaves the conversation usable.
"""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from fumehood.backends.interface import Conversation
from fumehood.errors import SandboxError
from fumehood.guest.contract.limits import MAX_CHANGES_BYTES, MAX_LISTING_BYTES, MOST_CHANGES
from fumehood.sandbox.files.entries import FileEntry, RawChange, parse_changes, parse_entries, parse_entry
from fumehood.sandbox.files.errors import FileRefusal

CHUNK_BYTES = 1024 * 1024
# Messages that may be on their way in before the service has answered the first of them.
_WINDOW = 4
_LEAST_BYTES = 64 * 1024

Request = Mapping[str, Any]
Take = Callable[[bytes], Awaitable[None]]
T = TypeVar("T")


class DataSource(Protocol):
    """Where the data of a file comes from, and its digest so far."""

    async def next(self) -> tuple[bytes | memoryview, bool]:
        """The next chunk, and whether it is the last; OSError when there is none to be had."""
        ...

    def sha256(self) -> str: ...


class Hash(Protocol):
    """Of hashlib."""

    def update(self, data: bytes, /) -> None: ...

    def hexdigest(self) -> str: ...


class StoredFile(NamedTuple):
    size: int
    version: tuple[int, int]
    """The version in the folder's entries: a file that a program puts in its place has another."""


class DataSink(Protocol):
    """Where the data of a file goes to, and its digest so far."""

    async def take(self, data: bytes) -> None: ...

    def sha256(self) -> str: ...


class MemorySource:
    def __init__(self, data: bytes) -> None:
        self._rest = memoryview(data)
        self._digest = hashlib.sha256()

    async def next(self) -> tuple[memoryview, bool]:
        chunk, self._rest = self._rest[:CHUNK_BYTES], self._rest[CHUNK_BYTES:]
        self._digest.update(chunk)
        return chunk, not self._rest

    def sha256(self) -> str:
        return self._digest.hexdigest()


class MemorySink:
    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._digest = hashlib.sha256()

    async def take(self, data: bytes) -> None:
        self._digest.update(data)
        self._chunks.append(data)

    def sha256(self) -> str:
        return self._digest.hexdigest()

    def content(self) -> bytes:
        return b"".join(self._chunks)


@contextmanager
def whole(conversation: Conversation) -> Iterator[None]:
    try:
        yield
    except FileRefusal:
        raise
    except BaseException:
        conversation.abandon()
        raise


async def ask(conversation: Conversation, request: Request) -> dict[str, Any]:
    with whole(conversation):
        await conversation.send(request)
        return await _done(conversation)


async def stat(conversation: Conversation, path: str, *, follow: bool = False, links: bool = True) -> FileEntry:
    done = await ask(conversation, {"do": "stat", "path": path, "follow": follow, "links": links})
    # The caller's own name for it; the service, which may have followed a link, knows it by another one.
    return replace(parse_entry({**done, "name": "_"}), name=posixpath.basename(path) or path or "workspace")


async def rename(conversation: Conversation, path: str, new_path: str) -> FileEntry:
    done = await ask(conversation, {"do": "rename", "path": path, "to": new_path})
    return replace(parse_entry({**done, "name": "_"}), name=posixpath.basename(new_path))


async def room(conversation: Conversation) -> tuple[int, int]:
    """Bytes of the workspace: used, and all."""
    done = await ask(conversation, {"do": "room"})
    used, total = done.get("used"), done.get("total")
    if type(used) is not int or type(total) is not int or not 0 <= used <= total:
        raise _broken("it sent a size that makes no sense")
    return used, total


async def list_folder(
    conversation: Conversation, path: str, *, limit: int, links: bool = True, most_digested: int | None = None
) -> list[FileEntry]:
    """At most `limit` entries, by name; with digests of files, of at most `most_digested` bytes, if that is given."""
    entries: list[FileEntry] = []
    request = {"do": "list", "path": path, "limit": limit, "links": links, "most_digested": most_digested}
    with whole(conversation):
        await conversation.send(request)
        async for body in _Answers(conversation, "entries", MAX_LISTING_BYTES):
            entries += parse_entries(body)
            if len(entries) > limit:
                raise _broken("it sent more entries than were asked for")
    return sorted(entries, key=lambda entry: entry.name)


async def watch(conversation: Conversation, path: str, *, recursive: bool) -> None:
    await ask(conversation, {"do": "watch", "path": path, "recursive": recursive})


async def changes(conversation: Conversation, *, wait: float) -> list[RawChange]:
    """What has changed since the last answer; empty if nothing has within `wait` seconds, or a little less."""
    found: list[RawChange] = []
    with whole(conversation):
        await conversation.send({"do": "changes", "wait": wait})
        async for body in _Answers(conversation, "changes", MAX_CHANGES_BYTES):
            found += parse_changes(body)
            if len(found) > MOST_CHANGES:
                raise _broken("it sent more changes than were asked for")
    return found


async def digest(conversation: Conversation, path: str, *, limit: int, links: bool = False) -> tuple[int, str]:
    request = {"do": "digest", "path": path, "limit": limit, "links": links}
    return _receipt(await ask(conversation, request))


async def fetch(conversation: Conversation, path: str, sink: DataSink, *, limit: int, links: bool = True) -> int:
    """The number of bytes that went into the sink, as the service and we both counted and digested them."""
    size = 0
    with whole(conversation):
        await conversation.send({"do": "read", "path": path, "limit": limit, "links": links, "saves": False})
        answers = _Answers(conversation, "data", limit)
        async for body in answers:
            size += len(body)
            await sink.take(body)
        _check((size, sink.sha256()), _receipt(answers.done), path)
    return size


async def fetch_chunks(
    conversation: Conversation, path: str, digest: Hash, *, limit: int
) -> AsyncGenerator[tuple[bytes, int], None]:
    """The bytes as they come, with the size that the file had; SandboxError at the end if they are not those that the
    service has read.

    `digest` is that of all of them at the end, and computed while the receiver of a chunk has it.
    """
    size = 0
    with whole(conversation):
        await conversation.send({"do": "read", "path": path, "limit": limit, "links": True, "saves": False})
        answers = _Answers(conversation, "data", limit)
        async for body in answers:
            size += len(body)
            yield body, answers.whole_size()
            digest.update(body)
        _check((size, digest.hexdigest()), _receipt(answers.done), path)


async def ask_together(conversation: Conversation, requests: Sequence[tuple[Request, bytes]]) -> list[dict[str, Any]]:
    """Requests whose answers are small, all sent before the first answer is read. The first refusal is raised."""
    with whole(conversation):
        for request, body in requests:
            await conversation.send(request, body)
        return _all_done([await _or_refusal(_done(conversation)) for _ in requests])


async def fetch_for_saving(conversation: Conversation, path: str, take: Take, *, limit: int) -> int:
    """A file for a snapshot, also one that its owner may not read; its digest is for the receiver to compute."""
    with whole(conversation):
        await conversation.send(_saving(path, limit))
        return await _receive_saved(conversation, path, limit, take)


async def fetch_together(conversation: Conversation, files: Sequence[tuple[str, int]]) -> list[bytes]:
    """Small files for a snapshot, each with its limit in bytes, all asked for before the first of them arrives."""
    with whole(conversation):
        for path, limit in files:
            await conversation.send(_saving(path, limit))
        return _all_done([await _or_refusal(_saved_content(conversation, *file)) for file in files])


def _saving(path: str, limit: int) -> Request:
    return {"do": "read", "path": path, "limit": limit, "links": False, "saves": True}


async def _saved_content(conversation: Conversation, path: str, limit: int) -> bytes:
    chunks: list[bytes] = []

    async def take(data: bytes) -> None:
        chunks.append(data)

    await _receive_saved(conversation, path, limit, take)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


async def _receive_saved(conversation: Conversation, path: str, limit: int, take: Take) -> int:
    answers, size = _Answers(conversation, "data", limit), 0
    async for body in answers:
        size += len(body)
        await take(body)
    if answers.done.get("size") != size:
        raise SandboxError(f"{path!r} did not arrive as it was sent: {size} bytes, and others were announced")
    return size


async def _or_refusal(answer: Awaitable[T]) -> T | FileRefusal:
    try:
        return await answer
    except FileRefusal as refusal:
        return refusal


def _all_done(answers: list[T | FileRefusal]) -> list[T]:
    done: list[T] = []
    for answer in answers:
        if isinstance(answer, FileRefusal):
            raise answer
        done.append(answer)
    return done


async def store(conversation: Conversation, request: Request, source: DataSource) -> StoredFile:
    """Sends a file. If the source raises OSError, it sends a request to discard what has been stored so far."""
    with whole(conversation):
        try:
            size, waiting = await _send_all(conversation, request, source)
        except _SourceFailedError as error:
            # Not an end of the conversation: the service has let go of the file and waits for the next request.
            failure = error.failure
        else:
            for _ in range(waiting):
                await _more(conversation)
            done = await _done(conversation)
            if "mode" in request:  # of a snapshot
                return restored_file(done, size)
            _check((size, source.sha256()), _receipt(done), str(request["path"]))
            return stored_file(done)
    raise failure


class _SourceFailedError(Exception):
    def __init__(self, failure: OSError) -> None:
        super().__init__(str(failure))
        self.failure = failure


async def _send_all(conversation: Conversation, request: Request, source: DataSource) -> tuple[int, int]:
    header, size, waiting = {**request, "last": False}, 0, 0
    while True:
        try:
            data, is_last = await source.next()
        except OSError as error:
            if "do" not in header:
                await _take_back(conversation, waiting)
            raise _SourceFailedError(error) from error
        if is_last:
            header = {**header, "last": True, "sha256": source.sha256()}
        await conversation.send(header, data)
        size += len(data)
        if is_last:
            return size, waiting
        header, waiting = {"last": False}, waiting + 1
        if waiting == _WINDOW:
            await _make_room(conversation)
            waiting -= 1


async def _make_room(conversation: Conversation) -> None:
    try:
        await _more(conversation)
    except FileRefusal:
        await conversation.send({"last": True})
        raise


async def _take_back(conversation: Conversation, waiting: int) -> None:
    await conversation.send({"last": True})
    try:
        for _ in range(waiting):
            await _more(conversation)
        await _done(conversation)
    except FileRefusal:
        return
    raise _broken("it kept a file that was taken back")


class _Answers:
    """The bodies of all answers of one kind; when they are through, `done` has the last word.

    Bounded in bytes, and so in number: a service sends large ones, and only the last may be small.
    """

    def __init__(self, conversation: Conversation, kind: str, limit: int) -> None:
        self._conversation, self._kind = conversation, kind
        self._limit = self._left = limit
        self._small = 1 + limit // CHUNK_BYTES
        self._header: dict[str, Any] = {}
        self.done: dict[str, Any] = {}

    def __aiter__(self) -> _Answers:
        return self

    async def __anext__(self) -> bytes:
        header, body = await _next(self._conversation)
        if "done" in header:
            self.done = _object(header["done"])
            raise StopAsyncIteration
        if self._kind not in header:
            raise _broken("it sent an answer of another kind")
        self._left -= len(body)
        self._small -= len(body) < _LEAST_BYTES
        if self._left < 0 or self._small < 0:
            raise _broken("it sent more than was asked for")
        self._header = header
        return body

    def whole_size(self) -> int:
        """Of the file whose data was received last, as the service says; whether it is so is seen at the end."""
        size = self._header.get("of")
        if type(size) is not int or not 0 <= size <= self._limit:
            raise _broken("it did not say how large the file is")
        return size


async def _more(conversation: Conversation) -> None:
    header, _ = await _next(conversation)
    if "more" not in header:
        raise _broken("it did not ask for more")


async def _done(conversation: Conversation) -> dict[str, Any]:
    header, _ = await _next(conversation)
    if "done" not in header:
        raise _broken("it did not say that it is done")
    return _object(header["done"])


async def _next(conversation: Conversation) -> tuple[dict[str, Any], bytes]:
    header, body = await conversation.receive()
    if "error" in header:
        raise FileRefusal(_object(header["error"]))
    return header, body


def _object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _broken("it sent an answer that is no object")
    return cast("dict[str, Any]", value)


def _receipt(done: dict[str, Any]) -> tuple[int, str]:
    size, sha256 = done.get("size"), done.get("sha256")
    if type(size) is not int or not isinstance(sha256, str) or len(sha256) != hashlib.sha256().digest_size * 2:
        raise _broken("it sent no digest")
    return size, sha256


def stored_file(done: dict[str, Any]) -> StoredFile:
    return StoredFile(_receipt(done)[0], _version(done))


def restored_file(done: dict[str, Any], size: int) -> StoredFile:
    """A file of a snapshot, whose digest was compared before it was sent."""
    if done.get("size") != size:
        raise _broken("it stored more of a file, or less, than was sent")
    return StoredFile(size, _version(done))


def _version(done: dict[str, Any]) -> tuple[int, int]:
    match done.get("version"):
        case [int(inode), int(changed_ns)]:
            return inode, changed_ns
        case _:
            raise _broken("it did not say what it has stored")


def _check(ours: tuple[int, str], theirs: tuple[int, str], path: str) -> None:
    if ours != theirs:
        raise SandboxError(f"{path!r} did not arrive as it was sent: {ours[0]} of {theirs[0]} bytes, or others")


def _broken(what: str) -> SandboxError:
    return SandboxError(f"the sandbox's file service broke the protocol: {what}")
