"""A root file system as one archive: what is in it, read at random. Nothing is ever unpacked."""

from __future__ import annotations

import posixpath
import re
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from fumehood.errors import StepFailedError

_MOST_LINKS = 40
_PYTHONS = ("usr/local/bin/python3", "usr/bin/python3", "bin/python3")
_PATH = ("usr/local/bin", "usr/bin", "bin")
_PYTHON = re.compile(r"python(\d+)\.(\d+)")


class Root:
    """Names have no slash in front."""

    def __init__(self, archive: tarfile.TarFile) -> None:
        self._archive = archive
        # A later entry of the same name takes the place of an earlier one.
        self.entries = {plain(entry.name): entry for entry in archive.getmembers()}
        self.entries.pop("", None)
        # An archive need not name the folders of what it has.
        self._folders = {str(parent) for name in self.entries for parent in PurePosixPath(name).parents}

    def content(self, entry: tarfile.TarInfo) -> IO[bytes]:
        """The content of a file, or of the file that a hard link names."""
        stream = self._archive.extractfile(entry)
        if stream is None:
            raise StepFailedError("reading the root file system", f"{entry.name} has no content")
        return stream

    def read(self, name: str) -> bytes | None:
        """None when there is no such file."""
        entry = self.entries.get(self.resolve(name) or "")
        return self.content(entry).read() if entry and (entry.isreg() or entry.islnk()) else None

    def resolve(self, name: str) -> str | None:
        """Where a path leads when every link on its way is followed; None when it leads nowhere in here."""
        pending, done = name.split("/")[::-1], ""
        for _ in range(_MOST_LINKS * 4):
            if not pending:
                return done
            done = plain(posixpath.join("/", done, pending.pop()))
            entry = self.entries.get(done)
            if entry is not None and entry.issym():
                pending += entry.linkname.split("/")[::-1]
                done = "" if entry.linkname.startswith("/") else posixpath.dirname(done)
            elif entry is None and done and done not in self._folders:
                return None
        return None

    def python(self) -> tuple[str, tuple[int, int]] | None:
        """Its path in a sandbox and its version."""
        for name in _PYTHONS:
            target = self.resolve(name)
            found = _PYTHON.fullmatch(posixpath.basename(target)) if target else None
            if found:
                return f"/{name}", (int(found[1]), int(found[2]))
        return None

    def find_command(self, command: str, kept: set[str]) -> str | None:
        """Where it is among the names that are kept, a name in PATH or a path."""
        folders = [""] if "/" in command else _PATH
        places = (self.resolve(f"{folder}/{command}".lstrip("/")) for folder in folders)
        return next((place for place in places if place in kept), None)


@contextmanager
def open_root(path: Path) -> Iterator[Root]:
    try:
        archive = tarfile.open(path, "r:")  # noqa: SIM115
    except (tarfile.TarError, OSError) as error:
        raise StepFailedError("reading the root file system", str(error), remedy="Build the image again.") from error
    with archive:
        yield Root(archive)


def plain(name: str) -> str:
    """One spelling for `./usr/`, `/usr` and `usr`; nothing leads above the root."""
    return posixpath.normpath(f"/{name}").lstrip("/")


ACCOUNT_NAME = "sandbox"
_FIRST_ID = 1000
_PASSWD, _GROUP = "etc/passwd", "etc/group"


@dataclass(frozen=True, slots=True)
class SandboxAccount:
    number: int
    files: dict[str, bytes]
    """What the image is to have in place of its own."""

    @property
    def user(self) -> str:
        return f"{self.number}:{self.number}"


def add_account(root: Root) -> SandboxAccount:
    """Adds the sandbox's account, with a uid that is unused in the image, so that it owns nothing there; replaces an
    account of the same name."""
    passwd, group = (_others(root, name) for name in (_PASSWD, _GROUP))
    taken = {_number(line) for line in (*passwd, *group)}
    number = next(each for each in range(_FIRST_ID, _FIRST_ID + len(taken) + 1) if each not in taken)
    passwd.append(f"{ACCOUNT_NAME}:x:{number}:{number}::/workspace:/bin/sh")
    group.append(f"{ACCOUNT_NAME}:x:{number}:")
    return SandboxAccount(number, {_PASSWD: _text(passwd), _GROUP: _text(group)})


def _others(root: Root, name: str) -> list[str]:
    lines = (root.read(name) or b"").decode("utf-8", "replace").splitlines()
    return [line for line in lines if line and not line.startswith(f"{ACCOUNT_NAME}:")]


def _number(line: str) -> int | None:
    fields = line.split(":")
    return int(fields[2]) if len(fields) > 2 and fields[2].isdigit() else None


def _text(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()
