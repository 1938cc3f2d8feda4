"""Files that tools make beside those that their words name: in a folder, by names of their own, out of an archive.

A copy has the name of what is copied. Where a name cannot be known, it may be any: see `WriteTargets.may_be_place`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from fumehood.policy.commands.clone_names import CLONING, cloned_folders
from fumehood.policy.commands.syntax import GLOB, ONE, PLAIN, Word, joined, known
from fumehood.policy.commands.variables import names
from fumehood.policy.commands.write_targets import without_packing

EXTRACTING = names("-x --extract --get")
_TO_OUTPUT = {"tar": names("-O --to-stdout"), "unzip": names("-l -v -t -p -Z")}
_RECURSIVE = {"cp": names("-r -R -a --recursive --archive"), "rsync": names("-r -a --recursive --archive")}
_ONTO_TARGET = names("-T --no-target-directory")
_ZIPPERS = names("bunzip2 bzip2 gunzip gzip unxz xz zstd")
_PACKED = replace(PLAIN, choices=(".gz", ".bz2", ".xz", ".zst", ".lzma", ".out"))  # `bunzip2 a` makes a.out
# What compilers write beside the file after -o.
OF_COMPILERS = names(
    "*.o *.s *.i *.ii *.d *.su *.gcno *.gcda *.gch *.gcm *.ltrans *.res *.stackdump *.opt-record.json.gz"
)
_ANY = Word((ONE,), 0, 0, "files of any name")


def made_files(name: str, operands: Sequence[Word], values: Mapping[str, Word | None]) -> Iterator[Word]:
    """`values` are the options that were given, with their values."""
    if name in _ZIPPERS:
        for word in operands:
            yield replace(word, pieces=(*word.pieces, _PACKED))
            if (unpacked := without_packing(word)).pieces != word.pieces:
                yield _with(unpacked, ".tar")
    elif name == "zip":
        yield from (_with(word, ".zip") for word in operands[:1])
    elif name == "split" and len(operands) < 2:
        yield Word(("x", GLOB), 0, 0, "xaa")
    elif name == "csplit":
        prefix = values.get("-f") or values.get("--prefix") or known("xx")
        yield replace(prefix, pieces=(*prefix.pieces, GLOB), raw=f"{prefix.raw}00")
    elif name == "git format-patch":
        yield Word((GLOB, ".patch"), 0, 0, "0001-....patch")
    elif name in CLONING and len(operands) == 1:
        yield from cloned_folders(operands[0])
    elif (name in _TO_OUTPUT and is_unpacking(name, values)) or any(contents(name, operands, values)):
        yield _ANY


def is_unpacking(name: str, given: Mapping[str, Word | None]) -> bool:
    is_asked = name == "unzip" or bool(EXTRACTING & given.keys())
    return is_asked and not _TO_OUTPUT.get(name, frozenset()) & given.keys()


def contents(name: str, operands: Sequence[Word], values: Mapping[str, Word | None]) -> Iterator[Word]:
    """Folders of which `cp` or `rsync` copies what is in them, whatever its names, and not the folder itself."""
    if _RECURSIVE.get(name, frozenset()) & values.keys():
        for word in sources(operands, values):
            last = last_part(word, is_folder=name == "cp").text
            if last in ("", ".", "..") or _ONTO_TARGET & values.keys():
                yield word


def is_recursive(name: str, given: Mapping[str, Word | None]) -> bool:
    return bool(_RECURSIVE.get(name, frozenset()) & given.keys())


def copied_names(operands: Sequence[Word], values: Mapping[str, Word | None]) -> Iterator[tuple[Word, Word]]:
    """Each word that is copied, and the name that the copy has, if the target is a folder."""
    if _ONTO_TARGET & values.keys():
        return
    for word in sources(operands, values):
        name = word if "--parents" in values else last_part(word, is_folder=True)
        if name.text not in ("", ".", ".."):
            yield word, name


def sources(operands: Sequence[Word], values: Mapping[str, Word | None]) -> Sequence[Word]:
    is_named = "-t" in values or "--target-directory" in values
    return operands if is_named else operands[:-1]


def last_part(word: Word, *, is_folder: bool) -> Word:
    """Of a path; with `is_folder` a slash at its end counts for nothing."""
    pieces, raw = list(word.pieces), word.raw
    if is_folder and word.suffix.endswith("/"):
        pieces[-1], raw = word.suffix.rstrip("/"), raw.rstrip("/")
    for number in reversed(range(len(pieces))):
        piece = pieces[number]
        if isinstance(piece, str) and "/" in piece:
            last = joined([piece.rpartition("/")[2], *pieces[number + 1 :]])
            return replace(word, pieces=last, raw=raw.rpartition("/")[2])
    return replace(word, pieces=joined(pieces), raw=raw)


def _with(word: Word, ending: str) -> Word:
    return replace(word, pieces=joined([*word.pieces, ending]), raw=f"{word.raw}{ending}")
