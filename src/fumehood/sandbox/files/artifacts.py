"""Artifacts: files that a run made and `filesystem.outputs` names, digested inside the sandbox and not copied."""

from __future__ import annotations

import mimetypes
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
_COMPRESSED = {"gzip": "application/gzip", "bzip2": "application/x-bzip2", "xz": "application/x-xz"}

_Version = tuple[int, int, int]


@frozen
class Collection:
    """The artifacts of a run, or the problem why there are none: with too many, none is returned."""

    artifacts: tuple[Artifact, ...]
    problem: str | None = None


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

    async def collect(self) -> Collection:
        async with explained(self._converse, "collect", "", self._policy) as conversation:
            return await self._collect(conversation, self._policy.resources)

    async def _collect(self, conversation: Conversation, limits: Resources) -> Collection:
        try:
            there = await present(conversation, self.outputs)
        except TooManyError as error:
            return Collection((), f"the workspace has {error} where outputs may be; make fewer")
        changed = [found for found in there if self._known.get(found.path) != _version(found)]
        self._known = {found.path: _version(found) for found in there}
        problem = _excess(changed, limits)
        if problem is not None:
            return Collection((), problem)
        return await _described(conversation, changed, limits.artifacts_size)


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


async def _described(conversation: Conversation, changed: list[WalkEntry], max_bytes: int) -> Collection:
    artifacts: list[Artifact] = []
    left = max_bytes
    for found in changed:
        try:
            size, sha256 = await protocol.digest(conversation, found.path, limit=left)
        except FileRefusal as refusal:
            if refusal.reason == "too large":
                return Collection((), f"its output files grow beyond {format_size(max_bytes)} while they are read")
            reason_of(refusal)  # another run of this sandbox has taken it away
            continue
        left -= size
        artifacts.append(Artifact(found.path, size, sha256, media_type(found.path)))
    return Collection(tuple(artifacts))


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
