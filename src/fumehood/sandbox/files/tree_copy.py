"""A tree of the host's in the workspace: what was put there, and what programs have made of it since."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha256

from fumehood.errors import UsageError
from fumehood.host.folder_tree import FolderTree
from fumehood.policy import Policy
from fumehood.policy.filesystem import Outputs
from fumehood.sandbox.audit import SandboxAudit
from fumehood.sandbox.files import protocol
from fumehood.sandbox.files.artifacts import ArtifactTracker
from fumehood.sandbox.files.entries import FileKind, Skipped
from fumehood.sandbox.files.errors import Converse, explained
from fumehood.sandbox.files.local import LocalSource
from fumehood.sandbox.files.walk import TooManyError, Walk, WalkEntry

_MAX_ENTRIES = 200_000
_EVERYTHING = Outputs(("**",))

_Version = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class TreeEntry:
    path: str
    """Below the top, on the host and in the workspace."""
    kind: FileKind
    target: str = ""
    """Of a link."""


@dataclass(slots=True)
class TreeChanges:
    """By paths below the workspace; files alone. What is written in place of a file, or hides it, is `odd`."""

    written: dict[str, int] = field(default_factory=dict[str, int])
    """Files that are new or were written, with their sizes."""
    deleted: list[str] = field(default_factory=list[str])
    odd: list[Skipped] = field(default_factory=list[Skipped])


class TreeCopy:
    """`put` copies files in; `changes` compares the workspace with what was put there."""

    def __init__(self, policy: Policy, converse: Converse, audit: SandboxAudit, artifacts: ArtifactTracker) -> None:
        self._policy, self._converse, self._audit, self._artifacts = policy, converse, audit, artifacts
        self._versions: dict[str, _Version] = {}
        self._links: dict[str, str] = {}
        self.digests: dict[str, str] = {}
        """Of each file as it went in."""

    async def put(self, tree: FolderTree, entries: Iterable[TreeEntry]) -> None:
        async with (
            self._audit.files() as audit,
            explained(self._converse, "upload", "", self._policy) as conversation,
        ):
            for entry in entries:
                match entry.kind:
                    case FileKind.FOLDER:
                        await protocol.ask(conversation, {"do": "mkdir", "path": entry.path, "parents": True})
                    case FileKind.LINK:
                        await protocol.ask(conversation, {"do": "link", "path": entry.path, "target": entry.target})
                        self._links[entry.path] = entry.target
                    case _:
                        with _source(tree, entry.path) as source:
                            request = {"do": "write", "path": entry.path, "executable": source.is_executable}
                            stored = await protocol.store(conversation, request, source)
                            self._remember(entry.path, stored, source.sha256())
                            await audit.stored(entry.path, stored.size, source.sha256())

    def _remember(self, path: str, stored: protocol.StoredFile, digest: str) -> None:
        self._artifacts.stored(path, stored)
        self._versions[path] = (*stored.version, stored.size)
        self.digests[path] = digest

    async def changes(self) -> TreeChanges:
        changes, seen, opaque = TreeChanges(), set[str](), set[str]()
        async with explained(self._converse, "compare", "", self._policy) as conversation:
            walk = Walk(conversation, _EVERYTHING, git=True, max_entries=_MAX_ENTRIES)
            try:
                async for found in walk.below(""):
                    seen.add(found.path)
                    if not self._judge(found, changes):
                        opaque.add(found.path)
            except TooManyError as error:
                raise UsageError(f"the workspace has {error}, too much to compare; nothing is taken from it") from None
        for path in sorted(self._versions.keys() - seen):
            if hiding := next((above for above in _above(path) if above in opaque), None):
                changes.odd.append(Skipped(path, f"{hiding!r} is no longer a folder that can be read"))
            else:
                changes.deleted.append(path)
        return changes

    async def record(self, path: str, content: bytes | None, target: str) -> None:
        """Before a change is made on the host, at `target`; without content it is a deletion."""
        async with self._audit.files() as audit:
            if content is None:
                audit.removed(path, target)
            else:
                audit.fetched(path, len(content), sha256(content).hexdigest(), target)

    def _judge(self, found: WalkEntry, changes: TreeChanges) -> bool:
        """False for what may hide files that were below it."""
        path, entry = found.path, found.entry
        if found.reason is not None:
            changes.odd.append(Skipped(path, found.reason))
            return False
        if entry.kind is FileKind.FOLDER:
            return True
        if entry.kind is FileKind.LINK and self._links.get(path) != entry.target:
            changes.odd.append(Skipped(path, "it is a link, which only a person makes"))
        elif entry.kind is FileKind.FILE and self._versions.get(path) != (*entry.version, entry.size):
            changes.written[path] = entry.size
        return False


def _source(tree: FolderTree, path: str) -> LocalSource:
    try:
        return LocalSource(tree.open_file(tuple(path.split("/"))))
    except OSError as error:
        raise UsageError(f"{path!r} in {tree.path!r} cannot be read: {error.strerror or error}") from error


def _above(path: str) -> list[str]:
    names = path.split("/")
    return ["/".join(names[:count]) for count in range(1, len(names))]
