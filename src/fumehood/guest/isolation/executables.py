"""Which files a sandbox may execute when the policy names its programs, and which it may read then.

A program needs more than its own file: a script its interpreter, a dynamic program its loader. The loader runs any file
that it can map, so programs that are not named must not be readable either; and nothing that can be written may be
mapped as code, which is for the mounts to see to.
"""

from __future__ import annotations

import glob
import os
import struct
from collections.abc import Iterator

_PROGRAM_FOLDERS = frozenset({"bin", "sbin", "games", "libexec"})
_LIBRARY_FOLDERS = frozenset({"lib", "lib32", "lib64", "libx32"})
# What in /usr/lib is data and libraries; the rest of it belongs to programs, and holds programs.
_LIBRARIES = (
    "python",
    "perl",
    "ruby",
    "lua",
    "php",
    "tcl",
    "node_modules",
    "nodejs",
    "locale",
    "ssl",
    "os-release",
    "file",
    "terminfo",
    "mime",
    "R",
)
# One file that is many programs: it gives what its name says only if that name is listed.
_MANY_IN_ONE = frozenset({"busybox", "toybox", "coreutils", "sbase-box", "ubase-box", "hashbox"})
# What a program cannot do its work without: programs by name, and all in a folder of its own.
_COMPILER = ("as", "ld", "/usr/lib/gcc/*/*/*", "/usr/libexec/gcc/*/*/*")
_GZIP = ("gzip",)
_HELPERS = {
    "git": ("/usr/lib/git-core/*", "/usr/libexec/git-core/*"),
    "tar": ("gzip", "bzip2", "xz", "zstd"),
    **dict.fromkeys(("gunzip", "zcat", "zgrep", "uncompress"), _GZIP),
    **dict.fromkeys(("egrep", "fgrep"), ("grep",)),
    "diff3": ("diff",),
    **dict.fromkeys(("cc", "gcc", "c++", "g++", "clang", "clang++"), _COMPILER),
    "rustc": ("cc", *_COMPILER),
    "cargo": ("rustc", "cc", *_COMPILER),
    "go": ("/usr/lib/go-*/bin/*", "/usr/lib/go-*/pkg/tool/*/*", "/usr/local/go/pkg/tool/*/*"),
    **dict.fromkeys(("java", "javac"), ("/usr/lib/jvm/*/lib/jspawnhelper",)),
    **dict.fromkeys(("npm", "npx"), ("node",)),
}
_MOST_LINKS = 8
# How deep and how long programs are looked for in other folders; what lies there by custom is data.
_DEEPEST, _MOST_FOLDERS = 5, 50_000
_DATA_FOLDERS = frozenset({"share", "include", "src", "man", "doc", "etc", "proc", "sys", "dev"})
_PT_INTERP = 3


class Executables:
    """`names` are those of the policy's rules: names in PATH, or paths."""

    def __init__(self, names: list[str], path: str, prefix: str) -> None:
        self._names = names
        self._prefix = os.path.realpath(prefix)
        helpers = {helper for name in names for helper in _HELPERS.get(os.path.basename(name), ())}
        patterns = {helper for helper in helpers if "*" in helper}
        self._helping = {folder for pattern in patterns for folder in _own_folders(pattern)}
        found = {file for name in {*names, *helpers} - patterns for file in self._files(name, path.split(":"))}
        self.files: list[str] = sorted({*found, *(file for pattern in patterns for file in _programs(pattern))})

    def _files(self, name: str, folders: list[str]) -> Iterator[str]:
        """The file that a name stands for, and all that it takes to execute it; nothing if it is not there."""
        places = [name] if "/" in name else [os.path.join(folder, name) for folder in folders]
        for place in places:
            real = os.path.realpath(place)
            if os.path.isfile(real) and not self._is_another(os.path.basename(real)):
                yield from _with_interpreters(real, _MOST_LINKS)

    def _is_another(self, real_name: str) -> bool:
        return real_name in _MANY_IN_ONE and real_name not in self._names

    def readable(self) -> list[str]:
        """Everything but folders of programs; of those only what belongs to the listed ones."""
        split = {"/", "/usr", "/usr/local", *_ancestors(self._prefix)}
        own = {folder for file in self.files if (folder := _own_folder(file))}
        return sorted({*_cover("/", split), *self.files, *own, *self._helping})


def _programs(pattern: str) -> list[str]:
    """Without their interpreters: a helper in Perl is no reason to let everybody have Perl."""
    found = map(os.path.realpath, glob.glob(pattern))
    return [path for path in found if os.path.isfile(path) and os.access(path, os.X_OK)]


def _own_folders(pattern: str) -> list[str]:
    """`/usr/lib/gcc` of `/usr/lib/gcc/*/*/*`: what else lies there belongs to the program too."""
    return glob.glob("/".join(pattern.split("/")[:4]))


def _with_interpreters(file: str, most: int) -> Iterator[str]:
    yield file
    try:
        with open(file, "rb") as stream:
            head = stream.read(4096)
    except OSError:
        return
    if most and head[:2] == b"#!":
        # `#!/usr/bin/env name` needs both.
        for word in head[2:].split(b"\n", 1)[0].decode("utf-8", "replace").split():
            found = word if word.startswith("/") else _first_in_path(word)
            if found and os.path.isfile(os.path.realpath(found)):
                yield from _with_interpreters(os.path.realpath(found), most - 1)
    elif (loader := _loader(head)) and os.path.isfile(loader):
        yield os.path.realpath(loader)


def _first_in_path(name: str) -> str | None:
    places = (f"{folder}/{name}" for folder in ("/usr/local/bin", "/usr/bin", "/bin"))
    return next((place for place in places if os.path.isfile(place)), None)


def _loader(head: bytes) -> str | None:
    """What the program's header names as its interpreter; only 64-bit little-endian files are run here."""
    if head[:6] != b"\x7fELF\x02\x01" or len(head) < 64:
        return None
    offset, size, count = struct.unpack_from("<Q", head, 32)[0], *struct.unpack_from("<HH", head, 54)
    for number in range(count):
        place = offset + number * size
        if place + 56 > len(head):
            return None
        kind, _, start, _, _, length = struct.unpack_from("<IIQQQQ", head, place)
        if kind == _PT_INTERP and start + length <= len(head):
            return os.fsdecode(head[start : start + length].rstrip(b"\0"))
    return None


def _ancestors(path: str) -> Iterator[str]:
    while path != "/":
        yield path
        path = os.path.dirname(path)


def _cover(folder: str, split: set[str]) -> Iterator[str]:
    """Paths that hold everything in the folder but programs. Links need no rule: what counts is where they lead."""
    search = ProgramSearch()
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if os.path.islink(path) or name in _PROGRAM_FOLDERS:
            continue
        if name in _LIBRARY_FOLDERS and folder in ("/", "/usr"):
            libraries = (os.path.join(path, inner) for inner in sorted(os.listdir(path)) if _is_library(path, inner))
            yield from (place for library in libraries for place in search.without_programs(library))
        elif path in split:
            yield from _cover(path, split)
        else:
            yield from search.without_programs(path)


class ProgramSearch:
    """A search for folders of programs that lie deeper, such as /opt/x/bin. Only machine code counts."""

    def __init__(self) -> None:
        self._left = _MOST_FOLDERS

    def without_programs(self, path: str, depth: int = _DEEPEST) -> list[str]:
        """The path itself, or, where there are programs in it, everything else that is in it."""
        if depth == 0 or os.path.basename(path) in _DATA_FOLDERS or not _may_hold_programs(path):
            return [path]
        if self._left == 0:
            return []  # not looked into, so not readable
        parts: list[str] = []
        is_whole = True
        for entry in self._entries(path):
            if not entry.is_dir(follow_symlinks=False):
                parts += [] if entry.is_symlink() else [entry.path]
            elif entry.name in _PROGRAM_FOLDERS and self._holds_programs(entry.path):
                is_whole = False
            else:
                found = self.without_programs(entry.path, depth - 1)
                is_whole = is_whole and found == [entry.path]
                parts += found
        return [path] if is_whole else parts

    def _holds_programs(self, folder: str) -> bool:
        return self._left == 0 or any(
            _is_machine_code(entry.path)
            for place in (folder, *(entry.path for entry in self._entries(folder) if entry.is_dir()))
            for entry in self._entries(place)
            if entry.is_file()
        )

    def _entries(self, folder: str) -> list[os.DirEntry[str]]:
        if self._left == 0:
            return []
        self._left -= 1
        try:
            with os.scandir(folder) as entries:
                return sorted(entries, key=lambda entry: entry.name)
        except OSError:
            return []


def _may_hold_programs(path: str) -> bool:
    """The loader maps nothing from where nothing may be executed."""
    try:
        return os.path.isdir(path) and not os.statvfs(path).f_flag & os.ST_NOEXEC
    except OSError:
        return False


def _is_machine_code(file: str) -> bool:
    try:
        with open(file, "rb") as stream:
            return stream.read(4) == b"\x7fELF"
    except OSError:
        return True


def _is_library(folder: str, name: str) -> bool:
    path = os.path.join(folder, name)
    if os.path.islink(path):
        return False
    is_multiarch = name.endswith(("-linux-gnu", "-linux-musl", "-linux-gnueabihf"))
    return os.path.isfile(path) or is_multiarch or name.startswith(_LIBRARIES)


def _own_folder(file: str) -> str | None:
    """The own folder of a program, such as /usr/lib/jvm/x of /usr/lib/jvm/x/bin/java, with its other files."""
    folder = os.path.dirname(file)
    if os.path.dirname(folder) in ("/", "/usr", "/usr/local") or not folder.startswith(("/usr/lib/", "/opt/")):
        return None
    return os.path.dirname(folder) if os.path.basename(folder) in _PROGRAM_FOLDERS else None
