"""Artifacts: files that a run made and `filesystem.outputs` names, digested inside the sandbox and not copied.

But for small pictures, where the audit log keeps output in full: people who look at a run see them.
"""

from __future__ import annotations

import hashlib
import mimetypes
from collections.abc import Mapping
from dataclasses import field
from functools import cache

from fumehood.backends.interface import Conversation
from fumehood.frozen import frozen
from fumehood.policy import Policy, Resources, format_size
from fumehood.policy.filesystem import Outputs
from fumehood.results import Artifact
from fumehood.sandbox.files import protocol
from fumehood.sandbox.files.entries import FileKind
from fumehood.sandbox.files.errors import Converse, FileRefusal, explained
from fumehood.sandbox.files.walk import TooManyError, Walk, WalkEntry, reason_of

_MAX_ENTRIES = 200_000
_UNKNOWN = "application/octet-stream"
PICTURES = frozenset({"image/png", "image/jpeg"})
"""Those that a log may keep beside its records, for people who look at it."""
_MOST_PICTURE_BYTES = 1024 * 1024
_MOST_PICTURES_BYTES = 4 * 1024 * 1024
_COMPRESSED = {"gzip": "application/gzip", "bzip2": "application/x-bzip2", "xz": "application/x-xz"}

_Version = tuple[int, int, int]


@frozen
class Collection:
    """The artifacts of a run, or the problem why there are none: with too many, none is returned."""

    artifacts: tuple[Artifact, ...]
    problem: str | None = None
    pictures: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    """Contents of those that are pictures and not large, by digest, if they were asked for."""


class ArtifactTracker:
    """Knows which output files were there, so that the next collection has those that are new or changed."""

    def __init__(self, policy: Policy, converse: Converse) -> None:
        self._policy, self._converse = policy, converse
        self.outputs = Outputs(policy.filesystem.outputs)
        self._known: dict[str, _Version] = {}

    def stored(self, path: str, stored: protocol.StoredFile) -> None:
        """The caller put this file there: it is not an artifact."""
        if self.outputs.match(path):
            self._known[path] = (*stored.version, stored.size)

    async def collect(self, *, with_pictures: bool = False) -> Collection:
        async with explained(self._converse, "collect", "", self._policy) as conversation:
            return await self._collect(conversation, self._policy.resources, with_pictures=with_pictures)

    async def _collect(self, conversation: Conversation, limits: Resources, *, with_pictures: bool) -> Collection:
        try:
            there = await present(conversation, self.outputs)
        except TooManyError as error:
            return Collection((), f"the workspace has {error} where outputs may be; make fewer")
        changed = [found for found in there if self._known.get(found.path) != _version(found)]
        self._known = {found.path: _version(found) for found in there}
        problem = _excess(changed, limits)
        if problem is not None:
            return Collection((), problem)
        picture_bytes = _MOST_PICTURES_BYTES if with_pictures else 0
        return await _described(conversation, changed, limits.artifacts_size, picture_bytes)


async def present(conversation: Conversation, outputs: Outputs) -> list[WalkEntry]:
    """The files that may leave, by path."""
    if not outputs.patterns:
        return []
    walk = Walk(conversation, outputs, git=outputs.ask_for_git, max_entries=_MAX_ENTRIES)
    found = [found async for found in walk.below("") if found.reason is None and found.entry.kind is FileKind.FILE]
    return sorted(found, key=lambda file: file.path)


def _version(found: WalkEntry) -> _Version:
    return (*found.entry.version, found.entry.size)


def _excess(changed: list[WalkEntry], limits: Resources) -> str | None:
    if len(changed) > limits.artifacts:
        return f"it made {len(changed)} output files, more than {limits.artifacts}; raise resources.artifacts"
    size = sum(found.entry.size for found in changed)
    if size > limits.artifacts_size:
        allowed = format_size(limits.artifacts_size)
        return f"its output files have {format_size(size)}, more than {allowed}; raise resources.artifacts_size"
    return None


async def _described(
    conversation: Conversation, changed: list[WalkEntry], max_bytes: int, picture_bytes: int
) -> Collection:
    """Read are at most `picture_bytes` of pictures; everything is digested."""
    artifacts: list[Artifact] = []
    pictures: dict[str, bytes] = {}
    left = max_bytes
    for found in changed:
        try:
            picture = await _picture(conversation, found, min(_MOST_PICTURE_BYTES, picture_bytes, left))
            if picture is not None:
                size, sha256 = len(picture), hashlib.sha256(picture).hexdigest()
                pictures[sha256] = picture
                picture_bytes -= size
            else:
                size, sha256 = await protocol.digest(conversation, found.path, limit=left)
        except FileRefusal as refusal:
            if refusal.reason == "too large":
                return Collection((), f"its output files grow beyond {format_size(max_bytes)} while they are read")
            reason_of(refusal)  # another run of this sandbox has taken it away
            continue
        left -= size
        artifacts.append(Artifact(found.path, size, sha256, media_type(found.path)))
    return Collection(tuple(artifacts), pictures=pictures)


async def _picture(conversation: Conversation, found: WalkEntry, most_bytes: int) -> bytes | None:
    """Its content; None of what is not a picture by its name, or larger."""
    if found.entry.size > most_bytes or media_type(found.path) not in PICTURES:
        return None
    sink = protocol.MemorySink()
    try:
        await protocol.fetch(conversation, found.path, sink, limit=most_bytes, links=False)
    except FileRefusal as refusal:
        if refusal.reason == "too large":  # it grows while it is read
            return None
        raise
    return sink.content()


@cache
def _types() -> mimetypes.MimeTypes:
    """The table that comes with Python, not the host's: a file has the same type on every machine."""
    return mimetypes.MimeTypes()


def media_type(path: str) -> str:
    """The media type by the name alone: a program in the sandbox may write content that imitates another type."""
    # The ./ keeps a name such as "data:x" from being read as a URL.
    kind, compression = _types().guess_type(f"./{path}")
    if compression is not None:
        return _COMPRESSED.get(compression, _UNKNOWN)
    return kind or _UNKNOWN
