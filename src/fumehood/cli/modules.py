"""The modules beside a script that it imports: part of the program, found in its text, and all that comes with it.

Nothing is executed to find them, and nothing is parsed: the text may be hostile, and a parser's memory and stack are
the host's. Only sources (`.py`) that an import names, from the script's own folder, not through links, a bounded
number. Where a folder holds more than programs, such as a home folder, nothing is taken from it.
"""

from __future__ import annotations

import os
import pwd
import re
import stat
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fumehood.errors import UsageError
from fumehood.host.folder_tree import FolderTree, Names, read_all
from fumehood.policy import format_size

if TYPE_CHECKING:
    from fumehood.results import RunResult
    from fumehood.sandbox.async_sandbox import AsyncSandbox

_MOST_FILES = 500
_MOST_BYTES = 16 * 1024 * 1024
_MOST_ENTRIES = 5000
_MOST_NAMES = 5000
_MOST_SCANNED_BYTES = 4 * 1024 * 1024
_DEEPEST = 20
_UNSEEN = "the policy asks for an approval, which is for the script alone"
# Sources are hostile: every repetition is possessive, so that no pattern goes over a character twice.
_COMMENT = re.compile(r"#[^\n]*+")
_IMPORT = re.compile(
    r"(?:^|[;:])[ \t]*+(?:from[ \t]++(\.*+)[ \t]*+((?:(?!import\b)[\w.]++)?+)[ \t]*+import\b[ \t]*+(\([^)]*+|[^\n;]++)"
    r"|import[ \t]++([^\n;]++))",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class ProgramModules:
    files: dict[str, bytes]
    """By their paths below the script's folder."""
    notes: tuple[str, ...]
    """What the script names and does not get, and why."""

    async def put_into(self, box: AsyncSandbox) -> None:
        """Into the workspace, where a program's own modules are looked for first."""
        for path, content in self.files.items():
            await box.files.write(path, content)

    async def take_back(self, box: AsyncSandbox, result: RunResult) -> None:
        """Nothing: they are copies, and what becomes of them is the program's business."""


def find_modules(script: str, source: bytes, *, is_asked_for: bool = False) -> ProgramModules:
    """The modules that a script at this path imports from its folder, as `python SCRIPT` would.

    None of them if a person is asked for an approval, who sees the script alone.
    """
    place = os.path.realpath(script)
    if not _names_of(source) or not os.path.isfile(place):
        return ProgramModules({}, ())
    folder = os.path.dirname(place)
    try:
        with FolderTree(folder) as tree:
            return _Search(tree, _UNSEEN if is_asked_for else _reason_against(folder)).run(source)
    except OSError as error:
        raise UsageError(f"the modules beside {script!r} cannot be read: {error.strerror or error}") from error


def _reason_against(folder: str) -> str | None:
    """Why nothing is taken from a folder: what lies there does not belong to the script, or is not the user's own."""
    if reason := reason_against_home(folder):
        return reason
    if os.stat(folder).st_mode & stat.S_IWOTH:
        return f"every user can write to {folder}; move the script to a folder of your own, or use --project"
    return None


def reason_against_home(folder: str) -> str | None:
    homes = {os.path.realpath(home) for home in (os.path.expanduser("~"), _home_of_user()) if home}
    if any(home == folder or home.startswith(f"{folder.rstrip('/')}/") for home in homes):
        return "your home folder is not a folder of one program; move the program to a folder of its own"
    return None


def _home_of_user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return ""


class _Search:
    def __init__(self, tree: FolderTree, reason: str | None) -> None:
        self._tree, self._reason = tree, reason
        self._files: dict[str, bytes] = {}
        self._notes: dict[str, None] = {}
        self._left_bytes, self._left_entries = _MOST_BYTES, _MOST_ENTRIES

    def run(self, source: bytes) -> ProgramModules:
        pending: list[tuple[Names, bytes]] = [((), source)]
        while pending:
            folder, text = pending.pop()
            before = len(self._files)
            for level, names in _names_of(text):
                if level and level - 1 > len(folder):
                    continue  # out of the script's folder
                self._take(folder[: len(folder) - level + 1] if level else (), names, is_absolute=not level)
            for path, content in [*self._files.items()][before:]:
                pending.append((tuple(path.split("/")[:-1]), content))
        return ProgramModules(self._files, tuple(self._notes))

    def _take(self, folder: Names, names: Names, *, is_absolute: bool) -> None:
        """As Python looks for a module: a package, else a file, else a folder on the way to one."""
        for name in names:
            file = (*folder, f"{name}.py")
            folder = (*folder, name)
            if is_absolute and len(folder) == 1 and (name in sys.stdlib_module_names or name == "__main__"):
                self._note(file, "a module of Python itself has that name, and is imported")
                return
            if self._is(stat.S_ISREG, (*folder, "__init__.py")):
                self._take_package(folder)
                return
            if self._take_file(file) or not self._is(stat.S_ISDIR, folder):
                return

    def _take_package(self, folder: Names) -> None:
        """All sources of a package: it may import its own by names that are made when it runs."""
        if self._reason or "/".join((*folder, "__init__.py")) in self._files:
            self._note(folder, self._reason)
            return
        for name, details in self._tree.entries(folder, self._left_entries):
            self._left_entries -= 1
            place = (*folder, name)
            if self._left_entries < 0 or len(place) > _DEEPEST:
                raise _too_much(f"more than {_MOST_ENTRIES} entries, or folders {_DEEPEST} deep,")
            if stat.S_ISDIR(details.st_mode) and name.isidentifier() and name != "__pycache__":
                self._take_package(place)
            elif name.endswith(".py"):
                self._take_file(place)

    def _take_file(self, place: Names) -> bool:
        """Whether there is such a file. One that is not taken, such as a link, is there as well, and is noted."""
        details, path = self._tree.look_at(place), "/".join(place)
        if details is None or path in self._files:
            return details is not None
        reason = self._reason or (
            None if stat.S_ISREG(details.st_mode) else "it is not a regular file, but a link, say"
        )
        if reason:
            self._note(place, reason)
            return True
        content = self._files[path] = read_all(self._tree.open_file(place), self._left_bytes)
        self._left_bytes -= len(content)
        if self._left_bytes < 0 or len(self._files) > _MOST_FILES:
            raise _too_much(f"more than {_MOST_FILES} files or {format_size(_MOST_BYTES)}")
        return True

    def _is(self, kind: Callable[[int], bool], place: Names) -> bool:
        details = self._tree.look_at(place)
        return details is not None and kind(details.st_mode)

    def _note(self, place: Names, reason: str | None) -> None:
        if reason and self._tree.look_at(place):
            self._notes[f"{'/'.join(place)} beside the script is not copied into the sandbox: {reason}"] = None


def _names_of(source: bytes) -> set[tuple[int, Names]]:
    """What a text may import: how many dots stand in front, and the names. Too many rather than too few."""
    text = _COMMENT.sub("", source[:_MOST_SCANNED_BYTES].decode("utf-8", "replace").replace("\\\n", " "))
    found = set[tuple[int, Names]]()
    for dots, module, members, modules in _IMPORT.findall(text):
        if modules:
            found.update((0, names) for names in _split(modules))
            continue
        start = tuple(module.split(".")) if module else ()
        found.update((len(dots), (*start, *names)) for names in _split(members.lstrip("(")))
    if len(found) > _MOST_NAMES:
        raise _too_much(f"more than {_MOST_NAMES} names")
    return {(level, names) for level, names in found if names and all(map(str.isidentifier, names))}


def _split(text: str) -> Iterator[Names]:
    """The names in `a.b as c, d`. A star is no name: it stands for the module in front of it."""
    for part in text.split(","):
        words = part.split()
        if words:
            yield () if words[0] == "*" else tuple(words[0].split("."))


def _too_much(what: str) -> UsageError:
    return UsageError(
        f"what the script imports from its folder has {what}; name what belongs to the program with --project DIR"
    )
