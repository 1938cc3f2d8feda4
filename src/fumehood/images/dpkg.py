"""Debian's own record of what is installed. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import filter as matching

from fumehood.images.root import Root

STATUS = "var/lib/dpkg/status"
# Where images without dpkg keep theirs, a file for each package.
STATUS_FOLDER = "var/lib/dpkg/status.d"
INFO = "var/lib/dpkg/info"
_FIELD = re.compile(r"^([A-Za-z-]+): ?(.*)$", re.MULTILINE)
_GLIBC = re.compile(r"(?:\d+:)?(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True)
class DebianPackage:
    name: str
    version: str
    architecture: str
    text: str
    """Its whole entry."""


def installed(root: Root) -> list[DebianPackage]:
    texts = (root.read(STATUS) or b"").decode("utf-8", "replace").split("\n\n")
    for name in sorted(root.entries):
        if name.startswith(f"{STATUS_FOLDER}/") and not name.endswith(".md5sums"):
            texts.append((root.read(name) or b"").decode("utf-8", "replace"))
    return sorted(filter(None, map(_package, texts)), key=lambda package: package.name)


def _package(text: str) -> DebianPackage | None:
    fields = dict(_FIELD.findall(text))
    if "Package" not in fields or not fields.get("Status", "installed").endswith("installed"):
        return None
    return DebianPackage(fields["Package"], fields.get("Version", ""), fields.get("Architecture", "all"), text.strip())


def files_of(root: Root, package: DebianPackage) -> set[str] | None:
    """A package's files by their resolved paths (/usr/bin/x for /bin/x where /bin is a link); None if not recorded."""
    place = _list_of(root, package)
    if place is None:
        return None
    listed = (root.read(place) or b"").decode("utf-8", "replace").splitlines()
    paths = (line.lstrip("/") for line in listed)
    return {place, *(found for path in paths if path and (found := _place(root, path)))}


def _list_of(root: Root, package: DebianPackage) -> str | None:
    names = (f"{package.name}:{package.architecture}", package.name)
    return next((place for name in names if (place := f"{INFO}/{name}.list") in root.entries), None)


def _place(root: Root, path: str) -> str | None:
    folder, _, name = path.rpartition("/")
    real = root.resolve(folder) if folder else ""
    place = f"{real}/{name}".lstrip("/")
    entry = root.entries.get(place)
    return place if entry is not None and not entry.isdir() else None


def split(root: Root, is_unwanted: Callable[[str], bool]) -> tuple[list[DebianPackage], set[str]]:
    """The packages that stay, and the files that belonged to those alone that do not. One whose files are not
    recorded stays in the list, since some of its files will be left."""
    kept: list[DebianPackage] = []
    gone: set[str] = set()
    needed: set[str] = set()
    for package in installed(root):
        files = files_of(root, package)
        if is_unwanted(package.name) and files is not None:
            gone |= files
        else:
            kept.append(package)
            needed |= files or set()
    return kept, gone - needed


def record_of(packages: list[DebianPackage]) -> bytes:
    return "".join(f"{package.text}\n\n" for package in packages).encode()


def glibc_version(packages: list[DebianPackage]) -> tuple[int, int] | None:
    found = next((_GLIBC.match(package.version) for package in packages if package.name == "libc6"), None)
    return (int(found[1]), int(found[2])) if found else None


# Those that the installer knows; the newest that is not newer than the image's library fits most wheels.
_KNOWN_GLIBC = ((2, 17), (2, 28), *((2, minor) for minor in range(31, 41)))
_OLDEST = (2, 17)


def wheel_platform(root: Root, machine: str) -> str:
    if matching(root.entries, "lib/ld-musl-*") or matching(root.entries, "usr/lib/ld-musl-*"):
        return f"{machine}-unknown-linux-musl"
    found = glibc_version(installed(root)) or _OLDEST
    major, minor = max(version for version in _KNOWN_GLIBC if version <= max(found, _OLDEST))
    return f"{machine}-manylinux_{major}_{minor}"
