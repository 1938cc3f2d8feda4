"""Where a line may write: redirections, and the files that tools are told to make.

Plain names in the folder where the line begins, or in places that the policy lets be written. Not hidden files and
folders, nor names by which programs find their orders: who writes `.git/config` decides what `git status` starts.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass

from fumehood.policy.commands.script import Redirection, Simple
from fumehood.policy.commands.variables import names
from fumehood.policy.commands.verdict import RefusedError
from fumehood.policy.commands.words import Word, known

WRITABLE = ("/workspace", "/tmp", "/var/tmp", "/dev/shm")
_READING = frozenset({"<", "<<<", "<<", "<<-"})
_BRACES = re.compile(r"([\w./-]*)\{([\w./,-]+)\}([\w./-]*)")
_DEVICES = re.compile(r"/dev/(?:null|stdout|stderr|tty|fd/[0-9]+)")
_NETWORK = ("/dev/tcp/", "/dev/udp/")
_CHARACTERS = re.compile(r"[\w ./@%+,=~-]+")
_HARMLESS_DOTS = names(
    ". .. .gitignore .gitkeep .keep .dockerignore .npmignore .prettierignore .eslintignore .editorconfig"
)
# Of git, which takes any folder that has them for a repository.
_OF_REPOSITORIES = names("config config.worktree HEAD commondir gitdir hooks attributes")
# Data, whatever stands before it.
_DATA = re.compile(
    r"[\w./ -]*\.(?:txt|log|csv|tsv|md|rst|out|err|sorted|bak|old|orig|new|tmp|html|xml|jsonl|ndjson|png|jpe?g|"
    r"gif|svg|pdf|gz|tgz|tar|zip|bz2|xz|zst|diff|patch|sha256|md5|lst|list|dat|data)"
)


@dataclass(frozen=True, slots=True)
class Place:
    """`writable` are folders; `is_doubtful` when the line goes to a folder that is not known, or hidden."""

    writable: Sequence[str] = WRITABLE
    is_doubtful: bool = False

    def problem(self, word: Word) -> tuple[str, str] | None:
        """Why the word is not a file that may be written, and what to do; None when it is."""
        if word.text is not None and _DEVICES.fullmatch(word.text):
            return None
        if found := _BRACES.fullmatch(word.raw):
            choices = (known(f"{found[1]}{choice}{found[3]}") for choice in found[2].split(","))
            return next(filter(None, map(self.problem, choices)), None)
        paths = _paths(word)
        if not paths:
            return "it cannot be known which file this writes", "write the file's name out, or end it in .txt"
        return next(filter(None, map(self._problem_of_path, paths)), None)

    def _problem_of_path(self, path: str) -> tuple[str, str] | None:
        if _CHARACTERS.fullmatch(path) is None:
            return "the name of this file has unusual characters", "use letters, digits, - and _"
        if path.startswith("/") and not any(path.startswith(f"{place}/") for place in self.writable):
            return "this is not a place to write to", f"write into the workspace or {' or '.join(self.writable)}"
        if _is_hidden(path) or any(part in _OF_REPOSITORIES for part in path.split("/")):
            return "programs may take orders from this file, or from files in this folder", "choose another name"
        if self.is_doubtful and not path.startswith("/"):
            return "the line changes to a folder that is hidden or not known", "name the folder, or write to /tmp"
        return None

    def check_redirection(self, redirection: Redirection) -> None:
        """Raises RefusedError."""
        target = redirection.target
        if target is None or redirection.operator == "<<<":
            return
        shown = (redirection.start, redirection.end)
        if target.text is None and redirection.operator in _READING and target.may_be_option:
            return
        if (target.text or target.prefix).startswith(_NETWORK):
            raise RefusedError(*shown, "the shell would open a network connection", "use a program that is allowed")
        if redirection.operator not in _READING and target.is_many:
            raise RefusedError(*shown, "it cannot be known which file this writes", "write the file's name out")
        if redirection.operator not in _READING and (found := self.problem(target)):
            raise RefusedError(*shown, *found)


def is_hidden_or_remote(word: Word) -> bool:
    """For files that are read or made, wherever they lie: whether the word may be more than a plain path."""
    paths = _paths(word) if all(hole.is_plain for hole in word.holes) else []
    return not paths or any(":" in path or _is_hidden(path) for path in paths)


def goes_astray(commands: Sequence[Simple]) -> bool:
    """Whether a line changes to a folder of which it is not known that it is an ordinary one."""
    folders = (simple.words[1:] for simple in commands if simple.words and simple.words[0].text in ("cd", "pushd"))
    return any(is_hidden_or_remote(word) for words in folders for word in words if word.text not in ("-", "--"))


def _is_hidden(path: str) -> bool:
    return any(part.startswith(".") and part not in _HARMLESS_DOTS for part in path.split("/"))


def _paths(word: Word) -> list[str]:
    """What it may be, with a letter for what is not known, or nothing where that may be; none when it matters more."""
    if not word.pieces or any(hole.is_many and not hole.is_glob for hole in word.holes):
        return []
    pieces = word.pieces
    if pieces[0] == "~" and len(pieces) > 2:
        pieces = pieces[2:]  # the home folder, and then what matters
        pieces = (str(pieces[0]).lstrip("/"), *pieces[1:]) if isinstance(pieces[0], str) else ("x", *pieces)
    is_data = _DATA.fullmatch(word.suffix) is not None
    if not is_data and not all(isinstance(piece, str) or piece.is_plain or piece.is_glob for piece in pieces):
        return []
    texts = {
        "".join(piece if isinstance(piece, str) else blank if piece.is_plain else "x" for piece in pieces)
        for blank in ("x", "x" if is_data else "")
    }
    return [posixpath.normpath(text) for text in texts if text]
