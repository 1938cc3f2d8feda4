"""The files of a project that go into a sandbox: found on the host, bounded in number and size, no link followed."""

from __future__ import annotations

import os
import stat

from fumehood.characters import one_line
from fumehood.cli.modules import reason_against_home
from fumehood.cli.project.ignore import FILES, MAX_FILE_BYTES, IgnoreRules
from fumehood.errors import UsageError
from fumehood.host.folder_tree import FolderTree, Names, read_all
from fumehood.policy import Policy, format_size
from fumehood.sandbox.files.entries import FileKind
from fumehood.sandbox.files.paths import stays_inside
from fumehood.sandbox.files.tree_copy import TreeEntry

_MOST_FILES = 20_000
_MOST_ENTRIES = 200_000
_DEEPEST = 50


class ProjectFolder:
    """What is in a project, as far as it goes into a sandbox. `notes` has what does not and is not ignored."""

    def __init__(self, tree: FolderTree, policy: Policy) -> None:
        self._tree, self._policy = tree, policy
        self.entries: list[TreeEntry] = []
        self.notes: list[str] = []
        self._bytes, self._left_entries = 0, _MOST_ENTRIES

    def scan(self) -> None:
        if reason := reason_against_home(os.path.realpath(self._tree.path)):
            raise UsageError(f"--project {self._tree.path!r}: {reason}")
        pending: list[tuple[Names, IgnoreRules]] = [((), IgnoreRules.default())]
        while pending:
            folder, rules = pending.pop()
            found = self._list(folder)
            for name in FILES:
                if any(each == name and stat.S_ISREG(details.st_mode) for each, details in found):
                    rules = rules.with_file(folder, self._read_rules((*folder, name)))
            for name, details in found:
                place, is_folder = (*folder, name), stat.S_ISDIR(details.st_mode)
                if rules.leave_out(place, is_folder=is_folder):
                    continue
                self._add(place, details)
                if is_folder:
                    pending.append((place, rules))

    def _list(self, folder: Names) -> list[tuple[str, os.stat_result]]:
        try:
            found = self._tree.entries(folder, self._left_entries)
        except OSError as error:
            place = "/".join(folder) or self._tree.path
            raise UsageError(
                f"{place!r} of the project cannot be read: {error.strerror}; .hoodignore can name it"
            ) from error
        self._left_entries -= len(found)
        if self._left_entries < 0 or len(folder) > _DEEPEST:
            raise _too_much(f"more than {_MOST_ENTRIES} entries, or is more than {_DEEPEST} folders deep")
        return found

    def _read_rules(self, place: Names) -> str:
        content = read_all(self._tree.open_file(place), MAX_FILE_BYTES)
        if len(content) > MAX_FILE_BYTES:
            raise UsageError(f"{'/'.join(place)!r} has more than {format_size(MAX_FILE_BYTES)}; use fewer rules")
        return content.decode("utf-8", "surrogateescape")

    def _add(self, place: Names, details: os.stat_result) -> None:
        path = "/".join(place)
        if stat.S_ISDIR(details.st_mode):
            self.entries.append(TreeEntry(path, FileKind.FOLDER))
        elif stat.S_ISREG(details.st_mode):
            self._count(details.st_size)
            self.entries.append(TreeEntry(path, FileKind.FILE))
        elif stat.S_ISLNK(details.st_mode):
            self._add_link(path, self._tree.target_of(place))
        else:
            self.notes.append(f"{one_line(path)} is left out: it is neither a file nor a folder nor a link")

    def _add_link(self, path: str, target: str) -> None:
        if stays_inside(path, target):
            self.entries.append(TreeEntry(path, FileKind.LINK, target))
        else:
            self.notes.append(f"{one_line(path)} is left out: it is a link that leads out of the folder, or may")

    def _count(self, size: int) -> None:
        self._bytes += size
        if len(self.entries) >= min(_MOST_FILES, self._policy.resources.inodes):
            raise _too_much(f"more than {min(_MOST_FILES, self._policy.resources.inodes)} files")
        if self._bytes > self._policy.workspace_bytes:
            room = format_size(self._policy.workspace_bytes)
            raise _too_much(f"more than the {room} that the workspace holds (--disk)")


def _too_much(what: str) -> UsageError:
    return UsageError(f"the project has {what}; name what is not needed in .hoodignore")
