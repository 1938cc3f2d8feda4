"""What is known of an installed environment, and its digest.

The last step before an installed folder may be used: it is made read-only, and its content gets a digest. The manifest
is kept beside it as JSON: plain data, checked when it is read.
"""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from fumehood.environments.spec import EnvironmentSpec
from fumehood.errors import StepFailedError


@dataclass(frozen=True, slots=True)
class Seal:
    content: str
    size_bytes: int


def seal(folder: Path) -> Seal:
    """Remove every right to write, and compute the digest of the content."""
    digest, size_bytes = hashlib.sha256(), 0
    for path in _walk(folder):
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            # Its mode means nothing, and following it could lead out of the folder.
            kind, content = "link", os.fsencode(os.readlink(path))
        elif stat.S_ISDIR(mode):
            kind, content = "folder", b""
            path.chmod(0o555)
        elif stat.S_ISREG(mode):
            kind, content = ("program" if mode & 0o111 else "file"), _fingerprint(path)
            path.chmod(0o555 if mode & 0o111 else 0o444)
            size_bytes += path.lstat().st_size
        else:
            raise StepFailedError(
                "sealing the environment", f"{path} is neither a file nor a folder", remedy="Remove its package."
            )
        digest.update(b"%s %d %s %d %s\n" % _framed(kind, path.relative_to(folder), content))
    return Seal(f"sha256:{digest.hexdigest()}", size_bytes)


def _walk(folder: Path) -> list[Path]:
    found = [folder]
    for root, folders, files in os.walk(folder):
        found += (Path(root, name) for name in (*folders, *files))
    return sorted(found)


def _fingerprint(path: Path) -> bytes:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest().encode()


def _framed(kind: str, path: Path, content: bytes) -> tuple[bytes, int, bytes, int, bytes]:
    """An entry with length prefixes, so that no name can look like two entries."""
    name = os.fsencode(path)
    return kind.encode(), len(name), name, len(content), content


_FILE = "manifest.json"


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


class Package(_Record):
    name: str
    version: str


class Manifest(_Record):
    key: str
    content: str
    """`sha256:...` over every file: path, mode and bytes."""
    asked: tuple[str, ...]
    """The requested packages, with the requested hashes, which the installed packages have."""
    index: str | None
    interpreter: str
    tag: str
    installed: tuple[Package, ...]
    size_bytes: int
    built_at: str


def describe(spec: EnvironmentSpec, packages: Path, *, content: str, size_bytes: int, built_at: str) -> Manifest:
    return Manifest(
        key=spec.key,
        content=content,
        asked=spec.packages,
        index=spec.index,
        interpreter=spec.interpreter.executable,
        tag=spec.tag,
        installed=_installed(packages),
        size_bytes=size_bytes,
        built_at=built_at,
    )


def write_manifest(folder: Path, manifest: Manifest) -> None:
    (folder / _FILE).write_text(manifest.model_dump_json(indent=2) + "\n", encoding="utf-8")


def read_manifest(folder: Path) -> Manifest | None:
    """None for whatever is not a finished environment of this version's making."""
    try:
        return Manifest.model_validate_json((folder / _FILE).read_bytes())
    except (OSError, ValidationError):
        return None


def _installed(packages: Path) -> tuple[Package, ...]:
    found = {each.metadata["Name"]: each.version for each in metadata.distributions(path=[str(packages)])}
    return tuple(Package(name=name, version=found[name]) for name in sorted(found, key=str.lower))
