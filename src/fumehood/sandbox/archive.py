"""Snapshots as tar archives. What of an archive that comes in is not plainly harmless is refused by name.

No archive is unpacked to a folder, and no snapshot either: entries become a manifest and contents by digest, and the
other way round. So neither links nor names reach the host's own files.
"""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from typing import Any, NoReturn, Protocol
from zlib import error as ZlibError

from fumehood.errors import SandboxError, UsageError
from fumehood.policy import Policy, format_size
from fumehood.sandbox.files.paths import stays_inside
from fumehood.sandbox.files.walk import MAX_CHARACTERS
from fumehood.snapshots.blobs import CHUNK_BYTES, BlobDraft
from fumehood.snapshots.content import CheckedContent
from fumehood.snapshots.manifest import EntryError, SnapshotEntry, SnapshotManifest, check_path
from fumehood.snapshots.store import SnapshotStore, StoreWriter

_GZIP = b"\x1f\x8b"
_MAX_HEADER_BYTES = 64 * 1024
_HEADERS = (
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
)
_FILES = (tarfile.REGTYPE, tarfile.AREGTYPE)
_NS = 1_000_000_000
# What an archive may have besides the contents of files: so much for each entry, and so much for all.
_ENTRY_BYTES, _SPARE_BYTES = 4096, 1024 * 1024
_MAX_GLOBAL_HEADERS = 64
_MAX_SECONDS = 2**63 // _NS


class ArchiveError(UsageError):
    """An archive that is not taken; nothing of it is."""


class _CheckedInfo(tarfile.TarInfo):
    """A header that is charged before it is read into memory."""

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        if self.type in _HEADERS and not 0 <= self.size <= _MAX_HEADER_BYTES:
            raise ArchiveError(f"the archive has a header of {self.size} bytes, too many for names; it is not taken")
        if self.type == tarfile.GNUTYPE_SPARSE:
            _refuse(self.name, "it is a sparse file; write the archive without --sparse")
        return super()._proc_member(archive)  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType, reportAttributeAccessIssue]  # where tarfile lets its readers add types


def read_archive(stream: io.BufferedReader, writer: StoreWriter, policy: Policy) -> SnapshotManifest:
    """The entries of a tar, also a compressed one (gzip), as a snapshot. UsageError names the first that is refused."""
    plain = gzip.GzipFile(fileobj=stream) if stream.peek(2)[:2] == _GZIP else stream
    metered: Any = _MeteredSource(plain)  # a stream of tarfile's calls `read` alone
    try:
        with tarfile.open(
            fileobj=metered, mode="r|", tarinfo=_CheckedInfo, encoding="utf-8", errors="surrogateescape"
        ) as archive:
            return _Reading(writer, policy, metered).read(archive)
    except EntryError as error:
        raise _refused(error.path, error.why) from None
    except (tarfile.TarError, OSError, EOFError, ZlibError, ValueError, RecursionError) as error:
        raise ArchiveError(f"this is not a tar archive, or it is damaged: {error}") from error


class ByteSource(Protocol):
    def read(self, size: int, /) -> bytes: ...


class _MeteredSource:
    """The archive as tarfile reads it. More than what its entries account for is not read, whatever it would be."""

    def __init__(self, source: ByteSource) -> None:
        self._source, self._left = source, _SPARE_BYTES

    def allow(self, size: int) -> None:
        """For one more entry, and so many bytes of content, which were charged."""
        self._left += _ENTRY_BYTES + size

    def read(self, size: int, /) -> bytes:
        data = self._source.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise ArchiveError("the archive has more headers than its entries need; it is not taken")
        return data


class _Reading:
    def __init__(self, writer: StoreWriter, policy: Policy, source: _MeteredSource) -> None:
        self._writer, self._source = writer, source
        self._most_bytes, self._most_entries = policy.workspace_bytes, policy.resources.inodes
        self._entries: dict[str, SnapshotEntry] = {}
        self._implied: set[str] = set()
        """Folders that hold an entry and were not mentioned so far."""
        self._bytes, self._left_characters = 0, MAX_CHARACTERS

    def read(self, archive: tarfile.TarFile) -> SnapshotManifest:
        for info in archive:
            path = _path(info)
            if path != "":
                self._take(archive, info, path)
            _forget(archive)
        folders = (SnapshotEntry(path, "folder", 0o755) for path in self._implied)
        return SnapshotManifest.of([*self._entries.values(), *folders])

    def _take(self, archive: tarfile.TarFile, info: tarfile.TarInfo, path: str) -> None:
        self._check(info, path)
        if info.type in _FILES:
            self._entries[path] = self._take_file(archive, info, path)
        elif info.isdir():
            self._entries[path] = SnapshotEntry(path, "folder", info.mode & 0o777, _time(info))
        elif info.issym():
            if not stays_inside(path, info.linkname):
                _refuse(path, f"it is a link that leads out, to {info.linkname!r}")
            self._entries[path] = SnapshotEntry(path, "link", target=info.linkname)
        elif info.islnk():
            self._entries[path] = self._take_hard_link(info, path)
        else:
            _refuse(path, "it is neither a file nor a folder nor a link")

    def _check(self, info: tarfile.TarInfo, path: str) -> None:
        check_path(path)
        if info.mode & 0o6000:
            _refuse(path, f"its mode {info.mode:o} has a set-uid or set-gid bit")
        if any(key.startswith(("GNU.sparse", "SCHILY.realsize")) for key in info.pax_headers):
            _refuse(path, "it is a sparse file; write the archive without --sparse")
        if path in self._entries:
            _refuse(path, "it is there twice")
        self._charge(info.size if info.type in _FILES else 0, path)
        self._charge_names(path, info.linkname)
        self._source.allow(info.size if info.type in _FILES else 0)

    def _charge_names(self, path: str, target: str) -> None:
        """Of the entry, and of the folders that it is in: an archive need not mention them."""
        is_new = path not in self._implied
        self._implied.discard(path)
        above = [each for each in _above(path) if each not in self._entries and each not in self._implied]
        if len(self._entries) + len(self._implied) + len(above) + is_new > self._most_entries:
            _refuse(path, f"it is more than {self._most_entries} entries, as resources.inodes of the policy has it")
        self._left_characters -= sum(map(len, above)) + len(path) * is_new + len(target)
        if self._left_characters < 0:
            _refuse(path, "with it, paths and links are too long to keep together")
        self._implied.update(above)

    def _charge(self, size: int, path: str) -> None:
        """Before anything of it is read."""
        if size < 0:
            _refuse(path, "its size is negative")
        self._bytes += size
        if self._bytes > self._most_bytes:
            room = format_size(self._most_bytes)
            _refuse(path, f"with it there are more than {room}, as filesystem.workspace.size of the policy has it")

    def _take_file(self, archive: tarfile.TarFile, info: tarfile.TarInfo, path: str) -> SnapshotEntry:
        content, batch, modified_ns = archive.extractfile(info), self._writer.batch, _time(info)
        assert content is not None
        draft = batch.begin()
        try:
            while data := content.read(CHUNK_BYTES):
                _store(draft, data)
            if draft.size != info.size:
                _refuse(path, "the archive ends in the middle of it")
        except BaseException:
            batch.drop(draft)
            raise
        return SnapshotEntry(path, "file", info.mode & 0o777, modified_ns, info.size, batch.finish(draft))

    def _take_hard_link(self, info: tarfile.TarInfo, path: str) -> SnapshotEntry:
        """Another name of a file that is in the archive already; it becomes a file of its own, which is charged."""
        original = self._entries.get(_plain(info.linkname))
        if original is None or original.kind != "file":
            _refuse(path, f"it is a hard link to {info.linkname!r}, which is not a file before it in the archive")
        self._charge(original.size, path)
        return SnapshotEntry(path, "file", original.mode, original.modified_ns, original.size, original.sha256)


def _forget(archive: Any) -> None:
    """A TarFile keeps every header for a search that a stream does not allow, and those for all entries for ever."""
    archive.members.clear()
    if len(archive.pax_headers) > _MAX_GLOBAL_HEADERS:
        raise ArchiveError(f"the archive has more than {_MAX_GLOBAL_HEADERS} headers for all entries; it is not taken")


def _store(draft: BlobDraft, data: bytes) -> None:
    try:
        draft.write(data)
    except OSError as error:  # not an error of the archive
        raise SandboxError(f"the archive cannot be stored: {error.strerror}; make room on the disk") from error


def _path(info: tarfile.TarInfo) -> str:
    if info.name.startswith("/"):
        _refuse(info.name, "its path is absolute")
    return _plain(info.name)


def _plain(name: str) -> str:
    """Without the `./` in front and the `/` behind it that archivers write; empty for the top itself."""
    while name.startswith("./"):
        name = name.removeprefix("./").lstrip("/")
    name = name.rstrip("/")
    return "" if name == "." else name


def _time(info: tarfile.TarInfo) -> int:
    """In nanoseconds, as exact as the archive has it."""
    try:
        seconds = Decimal(info.pax_headers.get("mtime", str(info.mtime)))
        is_known = abs(seconds) < _MAX_SECONDS  # to compute a number of a million digits takes half a minute
        return int(seconds * _NS) if is_known else _refuse(info.name, "its time is out of range")
    except (ArithmeticError, ValueError):
        _refuse(info.name, "its time is not a number")


def _refuse(path: str, why: str) -> NoReturn:
    raise _refused(path, why)


def _refused(path: str, why: str) -> ArchiveError:
    return ArchiveError(f"the archive is not taken because of {path[:200]!r}: {why}")


class ByteSink(Protocol):
    def write(self, data: bytes, /) -> int: ...


class WritableArchive(Protocol):
    def write(self, target: ByteSink) -> None: ...


class ArchiveWriter:
    """Writes chosen entries of a snapshot: the same bytes each time."""

    def __init__(self, store: SnapshotStore, manifest: SnapshotManifest, is_chosen: Callable[[str], bool]) -> None:
        self._store, self._manifest = store, manifest
        self.entries = tuple(_with_folders(manifest, is_chosen))
        self.skipped = [entry.path for entry in manifest.entries if _leads_out(entry) and is_chosen(entry.path)]

    def write(self, target: ByteSink) -> None:
        stream: Any = target  # a stream of tarfile's calls `write` alone
        options: dict[str, Any] = {"format": tarfile.PAX_FORMAT, "encoding": "utf-8", "errors": "surrogateescape"}
        with tarfile.open(fileobj=stream, mode="w|", **options) as archive:
            for entry in self.entries:
                self._add(archive, entry)
                _forget(archive)

    def _add(self, archive: tarfile.TarFile, entry: SnapshotEntry) -> None:
        if entry.kind != "file" or entry.size == 0:
            archive.addfile(_info(entry))
            return
        with CheckedContent(self._store, entry, self._manifest.id) as content:
            source: Any = content  # of which tarfile calls `read` alone
            archive.addfile(_info(entry), source)


def _with_folders(manifest: SnapshotManifest, is_chosen: Callable[[str], bool]) -> Iterable[SnapshotEntry]:
    chosen = [e for e in manifest.entries if e.kind != "folder" and is_chosen(e.path) and not _leads_out(e)]
    needed = {above for entry in chosen for above in _above(entry.path)}
    paths = {entry.path for entry in chosen}
    return (e for e in manifest.entries if e.path in paths or (e.kind == "folder" and _is_kept(e, needed, is_chosen)))


def _is_kept(folder: SnapshotEntry, needed: set[str], is_chosen: Callable[[str], bool]) -> bool:
    return folder.path in needed or is_chosen(folder.path)


def _above(path: str) -> Iterator[str]:
    while path := path.rpartition("/")[0]:
        yield path


def _leads_out(entry: SnapshotEntry) -> bool:
    return entry.kind == "link" and not stays_inside(entry.path, entry.target)


def _info(entry: SnapshotEntry) -> tarfile.TarInfo:
    info = tarfile.TarInfo(entry.path)
    info.mode, info.size, info.linkname = entry.mode or 0o777, entry.size, entry.target
    info.type = {"file": tarfile.REGTYPE, "folder": tarfile.DIRTYPE, "link": tarfile.SYMTYPE}[entry.kind]
    if entry.kind != "link":
        info.mode, info.mtime = entry.mode, entry.modified_ns // _NS
        if entry.modified_ns % _NS or entry.modified_ns < 0:
            info.pax_headers = {"mtime": str(Decimal(entry.modified_ns) / _NS)}
    return info
