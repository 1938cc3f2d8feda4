"""Named sandboxes and snapshots at a server, while they are not open; the methods are those of `NamedSandboxes`."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPResponse
from typing import Any, cast

from pydantic import ValidationError

from fumehood.errors import LostError
from fumehood.policy import Policy
from fumehood.remote.policies import pack_policy
from fumehood.remote.requests import ServerRequests
from fumehood.remote.values import unpack_snapshot
from fumehood.sandbox.archive import ByteSink, WritableArchive
from fumehood.snapshots.manifest import SnapshotEntry
from fumehood.snapshots.records import NamedSandbox, Snapshot, SnapshotRecord

NAMED = "named-sandboxes"
SNAPSHOTS = "snapshots"
POLICY_HEADER = "Fumehood-Policy"
SKIPPED_HEADER = "Fumehood-Skipped"
_CHUNK_BYTES = 256 * 1024


class RemoteNamedSandboxes:
    """Of the tenant that a key belongs to. Blocking."""

    def __init__(self, requests: ServerRequests) -> None:
        self._requests = requests

    def create_empty(self, name: str, policy: Policy) -> NamedSandbox:
        return self._create(name, policy)

    def create_from_snapshot(self, name: str, policy: Policy, wanted: str) -> NamedSandbox:
        return self._create(name, policy, snapshot=wanted)

    def _create(self, name: str, policy: Policy, **begin: str) -> NamedSandbox:
        body = {"name": name, "document": pack_policy(policy), **begin}
        return _record(self._requests.call("POST", NAMED, body=body))

    def create_from_archive(self, name: str, policy: Policy, stream: io.BufferedReader, source: str) -> NamedSandbox:
        """The archive is checked by the server, entry by entry, as it arrives."""
        document = base64.b64encode(json.dumps(pack_policy(policy)).encode()).decode()
        chunks: Iterator[bytes] = iter(lambda: stream.read(_CHUNK_BYTES), b"")
        headers, query = {POLICY_HEADER: document}, {"source": source}
        return _record(self._requests.upload(NAMED, name, "archive", chunks=chunks, headers=headers, query=query))

    def fork(self, name: str, copies: Sequence[str]) -> list[NamedSandbox]:
        answer = self._requests.call("POST", NAMED, name, "forks", body={"names": list(copies)})
        return [_record(each) for each in answer]

    def snapshot(self, name: str, snapshot_name: str | None) -> Snapshot:
        return unpack_snapshot(self._requests.call("POST", NAMED, name, "snapshots", body={"name": snapshot_name}))

    def export(
        self, name: str, target: str, write: Callable[[WritableArchive], None], *, everything: bool
    ) -> list[str]:
        """Calls `write` with the archive as it arrives; returns links that are left out because they lead out."""
        query = {"everything": "true"} if everything else {}
        with self._requests.download(NAMED, name, "archive", query=query) as response:
            write(_Archive(response))
            return _skipped(response)

    def sandboxes(self) -> list[NamedSandbox]:
        return [_record(each) for each in self._requests.call("GET", NAMED)]

    def find(self, name: str) -> NamedSandbox:
        return _record(self._requests.call("GET", NAMED, name))

    def entries(self, name: str) -> list[SnapshotEntry]:
        with _complete():
            answer = self._requests.call("GET", NAMED, name, "entries")
            return [SnapshotEntry(**each) for each in answer]

    def snapshots(self) -> list[SnapshotRecord]:
        with _complete():
            return [SnapshotRecord.model_validate(each) for each in self._requests.call("GET", SNAPSHOTS)]

    def remove(self, name: str) -> None:
        self._requests.call("DELETE", NAMED, name)

    def remove_snapshot(self, wanted: str) -> None:
        self._requests.call("DELETE", SNAPSHOTS, wanted)


class _Archive:
    """What arrives is written on, as it is."""

    def __init__(self, response: HTTPResponse) -> None:
        self._response = response

    def write(self, target: ByteSink) -> None:
        while data := self._response.read(_CHUNK_BYTES):
            target.write(data)


def _skipped(response: HTTPResponse) -> list[str]:
    try:
        given: object = json.loads(response.headers.get(SKIPPED_HEADER, "[]"))
    except ValueError:
        return []
    return [str(path) for path in cast("list[object]", given)] if isinstance(given, list) else []


def _record(answer: Any) -> NamedSandbox:
    with _complete():
        return NamedSandbox.model_validate(answer)


@contextmanager
def _complete() -> Iterator[None]:
    try:
        yield
    except (ValidationError, TypeError) as error:
        raise LostError(f"the server's answer is not complete: {error}; is it of another version?") from error
