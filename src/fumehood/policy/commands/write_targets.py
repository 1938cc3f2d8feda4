"""Where a line may write: redirections, and the output files that arguments of tools name.

Plain names in the folder where the line begins, or in places that the policy lets be written. Not hidden files and
folders, nor names by which programs find their orders: who writes `.git/config` decides what `git status` starts.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from fumehood.policy.commands.decision import RefusalError
from fumehood.policy.commands.rules import matches
from fumehood.policy.commands.syntax import GLOB, Hole, Piece, Redirection, SimpleCommand, Word, joined
from fumehood.policy.commands.variables import names

WRITABLE = ("/workspace", "/tmp", "/var/tmp", "/dev/shm")
_READING = frozenset({"<", "<<<", "<<", "<<-"})
_BRACES = re.compile(r"([\w./-]*)\{([\w./,-]+)\}([\w./-]*)")
_DEVICES = re.compile(r"/dev/(?:null|stdout|stderr|tty|fd/[12])")
_CHARACTERS = re.compile(r"[\w ./@%+,=~-]+")
_HARMLESS_DOTS = names(
    ". .. .gitignore .gitkeep .keep .dockerignore .npmignore .prettierignore .eslintignore .editorconfig"
)
# Files of git, which takes any folder that has them for a repository.
_OF_REPOSITORIES = names("config config.worktree HEAD commondir gitdir attributes")
_HOOKS = "hooks"
_PACKED = re.compile(r"[._-](?:t?gz|z|taz|t?xz|lz|lzma|tlz|t?bz2?|t?zst|t?lz4)\Z", re.IGNORECASE)
_MOST_PATHS = 1000
# Data, whatever stands before it.
_DATA = re.compile(
    r"[\w./ -]*\.(?:txt|log|csv|tsv|md|rst|out|err|sorted|bak|old|orig|new|tmp|html|xml|jsonl|ndjson|png|jpe?g|"
    r"gif|svg|pdf|gz|tgz|tar|zip|bz2|xz|zst|diff|patch|sha256|md5|lst|list|dat|data)"
)


@dataclass(frozen=True, slots=True)
class WriteTargets:
    """`writable` are folders; `is_doubtful` when the line goes to a folder that is not known, or hidden."""

    writable: Sequence[str] = WRITABLE
    is_doubtful: bool = False

    def problem(self, word: Word, *, is_unpacked: bool = False) -> tuple[str, str] | None:
        """Why the word is not a file that may be written, and what to do; None when it is.

        With `is_unpacked` the file without its ending may be written too.
        """
        if word.text is not None and _DEVICES.fullmatch(word.text):
            return None
        if found := _BRACES.fullmatch(word.raw):
            # A range such as {a..f} is as open as a glob.
            middles = (GLOB if ".." in choice else choice for choice in found[2].split(","))
            choices = (Word(joined([found[1], middle, found[3]]), word.start, word.end, "") for middle in middles)
            return next(filter(None, (self.problem(choice, is_unpacked=is_unpacked) for choice in choices)), None)
        paths = _paths(word, is_unpacked=is_unpacked)
        if not paths:
            return "it cannot be known which file this writes", "write the file's name out, or end it in .txt"
        return next(filter(None, map(self._problem_of_path, paths)), None)

    def _problem_of_path(self, path: str) -> tuple[str, str] | None:
        if _CHARACTERS.fullmatch(path.replace("*", "x")) is None:
            return "the name of this file has unusual characters", "use letters, digits, - and _"
        if path.startswith("/") and not any(path.startswith(f"{place}/") for place in self.writable):
            return "this is not a place to write to", f"write into the workspace or {' or '.join(self.writable)}"
        if _is_hidden(path) or _may_be_of_repository(path):
            fix = "end it as *.txt does, so that it finds no such file" if "*" in path else "choose another name"
            return "programs may take orders from this file, or from files in this folder", fix
        if self.is_doubtful and not path.startswith("/"):
            return "the line changes to a folder that is hidden or not known", "name the folder, or write to /tmp"
        return None

    def check_redirection(self, redirection: Redirection) -> None:
        """Raises RefusalError."""
        target = redirection.target
        if target is None or redirection.operator == "<<<":
            return
        shown = (redirection.start, redirection.end)
        if redirection.operator not in _READING and any(hole.is_many and not hole.is_plain for hole in target.holes):
            raise RefusalError(*shown, "it cannot be known which file this writes", "write the file's name out")
        if redirection.operator not in _READING and (found := self.problem(target)):
            raise RefusalError(*shown, *found)


def is_hidden_or_remote(word: Word) -> bool:
    """Whether a word that names a file to read or make may be more than a plain path."""
    paths = _paths(word) if all(hole.is_plain for hole in word.holes) else []
    return not paths or any(":" in path or _is_hidden(path) for path in paths)


def _may_be_hooks(word: Word) -> bool:
    return any(_may_be(part, _HOOKS) for path in _paths(word) for part in path.split("/"))


def goes_astray(commands: Sequence[SimpleCommand]) -> bool:
    """Whether a line changes to a folder of which it is not known that it is an ordinary one."""
    folders = (simple.words[1:] for simple in commands if simple.words and simple.words[0].text in ("cd", "pushd"))
    return any(
        is_hidden_or_remote(word) or _may_be_hooks(word)
        for words in folders
        for word in words
        if word.text not in ("-", "--")
    )


def _is_hidden(path: str) -> bool:
    return any(part.startswith(".") and part not in _HARMLESS_DOTS for part in path.split("/"))


def _may_be_of_repository(path: str) -> bool:
    """A folder may have the name of such a file; of git's hooks none has an ending."""
    *folders, last = path.split("/")
    if not last and folders:
        return _may_be(folders[-1], _HOOKS)
    if any(_may_be(last, name) for name in (*_OF_REPOSITORIES, _HOOKS)):
        return True
    return "." not in last and any(_may_be(folder, _HOOKS) for folder in folders)


def _may_be(pattern: str, name: str) -> bool:
    # Globs need not mind capitals, if the line says so.
    return matches(pattern.lower(), name.lower()) if "*" in pattern else pattern == name


def _paths(word: Word, *, is_unpacked: bool = False) -> list[str]:
    """What it may be, with a letter for what is not known, and * for what a glob finds; none when it matters more."""
    if not word.pieces or any(hole.may_fall_apart or hole.is_brace for hole in word.holes):
        return []
    pieces = word.pieces
    if isinstance(pieces[0], Hole) and pieces[0].is_home and len(pieces) > 1:
        pieces = pieces[1:]  # the home folder, and then what matters
        pieces = (str(pieces[0]).lstrip("/"), *pieces[1:]) if isinstance(pieces[0], str) else ("x", *pieces)
    suffix = _PACKED.sub("", word.suffix) if is_unpacked else word.suffix
    is_data = _DATA.fullmatch(suffix) is not None
    if not is_data and not all(isinstance(piece, str) or piece.is_plain or piece.is_glob for piece in pieces):
        return []
    choices = [_choices(piece, is_data=is_data) for piece in pieces]
    if prod(map(len, choices)) > _MOST_PATHS:
        return []
    texts = set(map("".join, product(*choices)))
    if is_unpacked:
        texts |= {_PACKED.sub("", text) for text in texts}
    return [_normal(text) for text in texts if text]


def _choices(piece: Piece, *, is_data: bool) -> tuple[str, ...]:
    if isinstance(piece, str):
        return (piece,)
    if piece.is_plain or piece.choices:
        return (*(piece.choices or ("x",)), *(() if is_data else ("",)))
    return ("*" if piece.is_glob else "x",)


def _normal(path: str) -> str:
    """What ends in a slash is a folder, and has no name of a file."""
    return posixpath.normpath(path) + ("/" if path.endswith("/") and path.strip("/.") else "")
