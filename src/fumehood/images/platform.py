"""For which platform an image needs wheels, in the words of the installer. Pure."""

from __future__ import annotations

from fnmatch import filter as matching

from fumehood.images import dpkg
from fumehood.images.root import Root

# Those that the installer knows; the newest that is not newer than the image's library fits most wheels.
_KNOWN_GLIBC = ((2, 17), (2, 28), *((2, minor) for minor in range(31, 41)))
_OLDEST = (2, 17)


def wheel_platform(root: Root, machine: str) -> str:
    if matching(root.entries, "lib/ld-musl-*") or matching(root.entries, "usr/lib/ld-musl-*"):
        return f"{machine}-unknown-linux-musl"
    found = dpkg.glibc_version(dpkg.installed(root)) or _OLDEST
    major, minor = max(version for version in _KNOWN_GLIBC if version <= max(found, _OLDEST))
    return f"{machine}-manylinux_{major}_{minor}"
