"""Where a line may write: redirections, and the output files that arguments of tools name.

Plain names below the folder where the line begins, or in places that the policy lets be written: nothing that goes up
with `..`, which leads elsewhere through a link. Not hidden files and folders, nor names by which programs find their
orders: who writes `.git/config` decides what `git status` starts.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fumehood.policy.commands.decision import RefusalError
from fumehood.policy.commands.patterns import matches, possibly_named
from fumehood.policy.commands.syntax import GLOB, Hole, Piece, Redirection, SimpleCommand, Word, joined, known
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
_MOST_PATHS = 128
# Data, of which it does not matter whether a variable in its name is empty.
_DATA = re.compile(
    r"[\w./ -]*\.(?:txt|log|csv|tsv|md|rst|out|err|sorted|bak|old|orig|new|tmp|html|xml|jsonl|ndjson|png|jpe?g|"
    r"gif|svg|pdf|gz|tgz|tar|zip|bz2|xz|zst|diff|patch|sha256|md5|lst|list|dat|data)"
)
# Of a word whose other parts are known: what `date` prints has neither dots nor slashes.
_DATE = re.compile(r"\$\(date (?:-u )?(?:\+[%YmdHMSFsjyN_-]+|\"\+[%YmdHMSFsjyN_-]+\"|'\+[%YmdHMSFsjyN_-]+')\)")
_NOT_PLAIN = re.compile(r"[$`'\\<>]")
# The line cannot set these: the folder where it is, and the home folder.
_FOLDERS = frozenset({"PWD", "HOME"})
_NOT_KNOWN = "it cannot be known which file this writes"


@dataclass(frozen=True, slots=True)
class WriteTargets:
    """`writable` are folders; `is_doubtful` when the line goes to a folder that is hidden, not known or elsewhere."""

    writable: Sequence[str] = WRITABLE
    is_doubtful: bool = False
    programs: frozenset[str] = frozenset()
    """Names of the files that rules let be run, as patterns: whoever writes one of those decides what runs."""
    folders: frozenset[str] = frozenset()
    """Names of the folders that those lie in: another folder of that name would bring others."""

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
        if self.may_be_program(word) or (is_unpacked and self.may_be_program(without_packing(word))):
            return "a rule lets this file be run, so that no line may write it", "choose another name"
        texts = _texts(word, is_unpacked=is_unpacked)
        if not texts:
            return _NOT_KNOWN, "write the file's name out, or set it to a plain name in the line itself"
        if any(map(_goes_up, texts)):
            return "the path goes up with `..`", f"write the whole path, such as {self.writable[0]}/name"
        return next(filter(None, map(self._problem_of_path, map(_normal, texts))), None)

    def may_be_program(self, word: Word) -> bool:
        """By the last part of the path, wherever it lies: folders may be moved, and links lead to others."""
        spelled = _with_date(word)
        return any(possibly_named(spelled, name) for name in self.programs)

    def may_be_place(self, word: Word) -> bool:
        """The same for what may be a folder, which goes with all that is in it."""
        stripped = replace(word, pieces=joined([*word.pieces[:-1], word.suffix.rstrip("/")])) if word.suffix else word
        spelled = _with_date(stripped)
        return any(possibly_named(spelled, name) for name in self.programs | self.folders)

    def problem_of_folder(self, word: Word) -> tuple[str, str] | None:
        """The same for a folder in which files of any name are made."""
        return self.problem(Word(joined([*word.pieces, "/"]), word.start, word.end, f"{word.raw}/"))

    def problem_of_here(self) -> tuple[str, str] | None:
        """The same for the folder where the line is."""
        return self._problem_of_path("x")

    def problem_of_removal(self, word: Word) -> tuple[str, str] | None:
        """The same for what is taken away: any file in a place to write to. What a variable brings is not known."""
        texts = _texts(word)
        if any(_goes_up(text) or not _is_inside(_normal(text), self.writable) for text in texts):
            return "this is not a place to write to", f"name what is in the workspace or {' or '.join(self.writable)}"
        return self.problem_of_here() if any(not text.startswith("/") for text in texts) else None

    def is_own_folder(self, word: Word) -> bool:
        """Whether it may be a folder in which programs look for orders: that of the line, a place to write to, home."""
        paths = [text.rstrip("/") for text in _paths(word)]
        return not paths or any(path in ("", ".", *self.writable) for path in paths)

    def leads_elsewhere(self, word: Word) -> bool:
        """Whether a path may be outside of the places that may be written: a link that is kept leads anywhere then."""
        texts = _texts(word)
        return not texts or any(_goes_up(text) or not _is_inside(_normal(text), self.writable) for text in texts)

    def _problem_of_path(self, path: str) -> tuple[str, str] | None:
        if _CHARACTERS.fullmatch(path.replace("*", "x")) is None:
            return "the name of this file has unusual characters", "use letters, digits, - and _"
        if path.startswith("/") and not any(path.startswith(f"{place}/") for place in self.writable):
            return "this is not a place to write to", f"write into the workspace or {' or '.join(self.writable)}"
        if _is_hidden(path) or _may_be_of_repository(path):
            fix = "end it as *.txt does, so that it finds no such file" if "*" in path else "choose another name"
            return "programs may take orders from this file, or from files in this folder", fix
        if self.is_doubtful and not path.startswith("/"):
            why = "the line changes to a folder that is hidden, not known or no place to write to"
            return why, "name the folder, or write to /tmp"
        return None

    def check_redirection(self, redirection: Redirection) -> None:
        """Raises RefusalError."""
        target = redirection.target
        if target is None or redirection.operator == "<<<":
            return
        shown = (redirection.start, redirection.end)
        if redirection.operator not in _READING and any(hole.is_many and not hole.is_plain for hole in target.holes):
            raise RefusalError(*shown, _NOT_KNOWN, "write the file's name out")
        if redirection.operator not in _READING and (found := self.problem(target)):
            raise RefusalError(*shown, *found)


def is_hidden_or_remote(word: Word) -> bool:
    """Whether a word that names a file to read or make may be more than a plain path."""
    paths = _paths(word) if all(hole.is_plain for hole in word.holes) else []
    return not paths or any(":" in path or _is_hidden(path) for path in paths)


def _may_be_hooks(word: Word) -> bool:
    return any(_may_be(part, _HOOKS) for path in _paths(word) for part in path.split("/"))


def goes_astray(commands: Sequence[SimpleCommand], writable: Sequence[str]) -> bool:
    """Whether a line changes to a folder of which it is not known that it is an ordinary one."""
    folders = (simple.words[1:] for simple in commands if simple.words and simple.words[0].text in ("cd", "pushd"))
    return any(_are_astray(words, writable) for words in folders)


def _are_astray(words: Sequence[Word], writable: Sequence[str]) -> bool:
    """The shell itself takes `a/..` for no step at all; with -P the kernel does not, where `a` is a link."""
    is_physical = any(word.prefix.startswith("-") and word.text not in ("-", "--") for word in words)
    places = [word for word in words if word.text not in ("-", "--")]
    return any(is_astray(word, writable) or (is_physical and any(map(_goes_up, _texts(word)))) for word in places)


def is_astray(folder: Word, writable: Sequence[str]) -> bool:
    """Whether it is not known that this is an ordinary folder, below the present one or in a place to write to."""
    if is_hidden_or_remote(folder) or _may_be_hooks(folder):
        return True
    return not all(_is_inside(path, writable) for path in _paths(folder))


def begins_astray(cwd: str, writable: Sequence[str]) -> bool:
    """The same for the folder where a run begins, if one is given; the kernel follows links before `..`."""
    return bool(cwd) and (is_astray(known(cwd), writable) or _goes_up(cwd))


def is_elsewhere(cwd: str, workspace: str) -> bool:
    """Whether a run begins in another folder than the one that relative paths of rules are meant for."""
    return _goes_up(cwd) or posixpath.normpath(posixpath.join(workspace, cwd)) != workspace


def _is_inside(path: str, writable: Sequence[str]) -> bool:
    if not path.startswith("/"):
        return not _goes_up(path)
    return any(f"{path}/".startswith(f"{place}/") for place in writable)


def _goes_up(path: str) -> bool:
    return ".." in path.split("/")


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


def _paths(word: Word) -> list[str]:
    return list(map(_normal, _texts(word)))


def _texts(word: Word, *, is_unpacked: bool = False) -> list[str]:
    """What it may be, with a letter for a plain name, and * for what a glob finds; none when it may be anything."""
    if not word.pieces or any(hole.may_fall_apart or hole.is_brace for hole in word.holes):
        return []
    pieces = word.pieces
    if len(pieces) > 1 and isinstance(pieces[0], Hole) and isinstance(pieces[1], str) and pieces[1].startswith("/"):
        is_folder = pieces[0].is_home or (pieces[0].name in _FOLDERS and not pieces[0].is_plain)
        pieces = (f".{pieces[1]}", *pieces[2:]) if is_folder else pieces
    if _is_dated(word):
        pieces = joined([piece if isinstance(piece, str) or piece.is_glob else "x" for piece in pieces])
    suffix = _PACKED.sub("", word.suffix) if is_unpacked else word.suffix
    is_data = _DATA.fullmatch(suffix) is not None
    if not all(isinstance(piece, str) or _is_known(piece, is_data=is_data) for piece in pieces):
        return []
    choices = [_choices(piece, is_data=is_data) for piece in pieces]
    texts = {""}
    for choice in choices:
        texts = {text + more for text in texts for more in choice}
        if len(texts) > _MOST_PATHS:
            return []
    if is_unpacked:
        texts |= {_PACKED.sub("", text) for text in texts}
    return [text for text in texts if text]


def _is_known(hole: Hole, *, is_data: bool) -> bool:
    return hole.is_plain or hole.is_glob or (is_data and hole.is_number)


def _is_dated(word: Word) -> bool:
    """Whether all that is not known of it is what `date` prints."""
    rest, count = _DATE.subn("", word.raw)
    return count > 0 and count == sum(not hole.is_glob for hole in word.holes) and not _NOT_PLAIN.search(rest)


def _with_date(word: Word) -> Word:
    """What `date` prints has no slash, as what a glob finds."""
    if not _is_dated(word):
        return word
    return replace(word, pieces=tuple(piece if isinstance(piece, str) else GLOB for piece in word.pieces))


def without_packing(word: Word) -> Word:
    """The name of what `gunzip` makes of it."""
    return Word(joined([*word.pieces[:-1], _PACKED.sub("", word.suffix)]), word.start, word.end, word.raw)


def _choices(piece: Piece, *, is_data: bool) -> tuple[str, ...]:
    if isinstance(piece, str):
        return (piece,)
    if piece.is_plain or piece.choices:
        return (*(piece.choices or ("x",)), *(() if is_data else ("",)))
    return ("*" if piece.is_glob else "x",)


def _normal(path: str) -> str:
    """What ends in a slash is a folder, and has no name of a file."""
    return posixpath.normpath(path) + ("/" if path.endswith("/") and path.strip("/.") else "")
