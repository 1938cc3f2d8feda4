"""The last step before an installed folder may be used: it is made read-only, and its content gets a digest."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

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
