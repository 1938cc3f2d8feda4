"""Wraps a layer as what an engine loads, in `docker load`'s format: written here, so that equal images are the same."""

from __future__ import annotations

import hashlib
import io
import json
import os
import posixpath
import stat
import tarfile
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, cast

from fumehood.images.content_filter import mode_of
from fumehood.images.root import Root, plain

_CHUNK_BYTES = 1024 * 1024
# The kernel's names for what Go calls otherwise.
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, slots=True)
class Configuration:
    machine: str
    user: str
    variables: Mapping[str, str]
    labels: Mapping[str, str]
    made_at: int


@dataclass(frozen=True, slots=True)
class ImageArchive:
    name: str
    configuration: bytes
    layer: Path

    @property
    def digest(self) -> str:
        """The digest that identifies the image."""
        return f"sha256:{hashlib.sha256(self.configuration).hexdigest()}"

    async def chunks(self) -> AsyncIterator[bytes]:
        identity = self.digest.removeprefix("sha256:")
        contents = [{"Config": f"{identity}.json", "RepoTags": [self.name], "Layers": ["layer.tar"]}]
        yield _member(f"{identity}.json", self.configuration)
        yield _member("manifest.json", json.dumps(contents).encode())
        yield _header("layer.tar", self.layer.stat().st_size)
        with self.layer.open("rb") as stream:
            while data := stream.read(_CHUNK_BYTES):
                yield data
        yield _padding(self.layer.stat().st_size) + b"\0" * (2 * tarfile.BLOCKSIZE)


def image_configuration(wanted: Configuration, layer_digest: str) -> bytes:
    made_at = datetime.fromtimestamp(wanted.made_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    content: dict[str, Any] = {
        "architecture": _ARCHITECTURES.get(wanted.machine, wanted.machine),
        "os": "linux",
        "created": made_at,
        "config": {
            "User": wanted.user,
            "Env": [f"{name}={value}" for name, value in sorted(wanted.variables.items())],
            "Cmd": ["python3"],
            "WorkingDir": "/workspace",
            "Labels": dict(wanted.labels),
        },
        "rootfs": {"type": "layers", "diff_ids": [layer_digest]},
        "history": [{"created": made_at, "created_by": "hood image build"}],
    }
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def _header(name: str, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, 0o644
    return info.tobuf(tarfile.PAX_FORMAT)


def _member(name: str, content: bytes) -> bytes:
    return _header(name, len(content)) + content + _padding(len(content))


def _padding(size: int) -> bytes:
    return b"\0" * (-size % tarfile.BLOCKSIZE)


_READ_ONLY, _FOLDER, _LINK = 0o444, 0o755, 0o777


@dataclass(frozen=True, slots=True)
class LayerEntry:
    info: tarfile.TarInfo
    open: Callable[[], IO[bytes]] | None = None


class Layer:
    """Filled first, then written; what is added later takes the place of what was there. No change is newer than
    `newest`, in seconds since 1970."""

    def __init__(self, newest: int) -> None:
        self._newest = newest
        self._entries: dict[str, LayerEntry] = {}

    def add_root(self, root: Root, kept: list[str]) -> None:
        names = set(kept)
        for name in kept:
            entry = root.entries[name]
            info = self._info(name, entry.type, mode_of(entry.mode, is_folder=entry.isdir()), entry.mtime)
            info.uid, info.gid, info.linkname = entry.uid, entry.gid, entry.linkname
            if entry.islnk() and plain(entry.linkname) in names:
                info.linkname = plain(entry.linkname)
            elif entry.islnk():
                # The name that had the content is gone: this one has it now.
                original = root.entries[plain(entry.linkname)]
                info.type, info.linkname, info.size = tarfile.REGTYPE, "", original.size
            elif entry.isreg():
                info.type, info.size = tarfile.REGTYPE, entry.size
            self._entries[name] = LayerEntry(info, _reader(root, entry) if info.isreg() else None)

    def add_file(self, name: str, content: bytes, mode: int = _READ_ONLY) -> None:
        self._add_parents(name)
        info = self._info(name, tarfile.REGTYPE, mode, self._newest)
        info.size = len(content)
        self._entries[name] = LayerEntry(info, lambda: io.BytesIO(content))

    def add_folder(self, name: str, mode: int = _FOLDER) -> None:
        self._add_parents(name)
        self._entries[name] = LayerEntry(self._info(name, tarfile.DIRTYPE, mode, self._newest))

    def add_tree(self, place: str, folder: Path, rewrite: Callable[[bytes], bytes]) -> None:
        """A folder of this machine's, root's in the image; `rewrite` gets the programs in its folder `bin`."""
        self.add_folder(place)
        for path in sorted(folder.rglob("*")):
            name, details = f"{place}/{path.relative_to(folder)}", path.lstat()
            mode = mode_of(stat.S_IMODE(details.st_mode), is_folder=path.is_dir())
            if path.is_symlink():
                info = self._info(name, tarfile.SYMTYPE, _LINK, self._newest)
                info.linkname = os.readlink(path)
                self._entries[name] = LayerEntry(info)
            elif path.is_dir():
                self.add_folder(name, mode)
            elif path.parent == folder / "bin":
                self.add_file(name, rewrite(path.read_bytes()), mode)
            else:
                info = self._info(name, tarfile.REGTYPE, mode, self._newest)
                info.size = details.st_size
                self._entries[name] = LayerEntry(info, _opener(path))

    def write(self, path: Path, heartbeat: Callable[[], None]) -> str:
        """Writes entries in the order of names, hard links after their targets. Returns `sha256:...` of the bytes."""
        with path.open("wb") as file:
            sink = _Digesting(file)
            with tarfile.open(fileobj=cast("IO[bytes]", sink), mode="w", format=tarfile.PAX_FORMAT) as archive:
                for entry in sorted(self._entries.values(), key=lambda entry: (entry.info.islnk(), entry.info.name)):
                    heartbeat()
                    if entry.open is None:
                        archive.addfile(entry.info)
                        continue
                    with entry.open() as content:
                        archive.addfile(entry.info, content)
        return f"sha256:{sink.digest.hexdigest()}"

    def _info(self, name: str, kind: bytes, mode: int, changed_at: float) -> tarfile.TarInfo:
        info = tarfile.TarInfo(name)
        info.type, info.mode = kind, mode
        # Whole seconds: fractions would need a header of their own.
        info.mtime = min(int(changed_at), self._newest)
        return info

    def _add_parents(self, name: str) -> None:
        parent = posixpath.dirname(name)
        if parent and parent not in self._entries:
            self.add_folder(parent)


class _Digesting:
    """A file for writing that knows the digest of what it got."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.digest = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        return self._file.write(data)

    def tell(self) -> int:
        return self._file.tell()


def _reader(root: Root, entry: tarfile.TarInfo) -> Callable[[], IO[bytes]]:
    return lambda: root.content(entry)


def _opener(path: Path) -> Callable[[], IO[bytes]]:
    return lambda: path.open("rb")
