"""Ways to make a program that does one thing run something else, such as `tar --checkpoint-action` and `git -c`.

A hatch is shut unless a rule spells the word that opens it. A word that is not known may be such a word.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fumehood.policy.commands.awk import find_awk_hatch
from fumehood.policy.commands.sed import find_sed_hatch
from fumehood.policy.commands.words import Word


@dataclass(frozen=True, slots=True)
class Opening:
    """`position` is the word's place among the arguments."""

    position: int
    why: str


@dataclass(frozen=True, slots=True)
class Hatch:
    long: tuple[str, ...] = ()
    short: str = ""
    """Letters; one may also stand at the end of others."""
    words: tuple[str, ...] = ()
    """Words as they are, or beginnings of words that end in `*`."""
    old_style: bool = False
    """The first word may be letters without a dash, as with tar."""
    one_dash: bool = False
    """Long options have one dash."""
    valued: str = ""
    """Letters whose option takes the next word for its value, whatever that is."""
    only_known: bool = False
    """Rarely meant and of little use: a word that is not known is not taken for it."""


def _hatch(
    long: str = "",
    short: str = "",
    words: str = "",
    *,
    valued: str = "",
    old_style: bool = False,
    one_dash: bool = False,
    only_known: bool = False,
) -> Hatch:
    return Hatch(tuple(long.split()), short, tuple(words.split()), old_style, one_dash, valued, only_known)


_TAR = _hatch(
    "--rsh-command --to-command --checkpoint-action --use-compress-program --info-script --new-volume-script",
    "IF",
    old_style=True,
    valued="fCTXb",
)
_COMPILER = _hatch(words="-wrapper -fplugin* -specs* -B* @* -Xassembler -Wl,*plugin*", one_dash=True)
_HATCHES = {
    "tar": _TAR,
    "gtar": _TAR,
    "bsdtar": _hatch("--use-compress-program", "I", old_style=True),
    "cpio": _hatch("--rsh-command"),
    "sort": _hatch("--compress-program", valued="ktSTo"),
    "split": _hatch("--filter"),
    "zip": _hatch("--unzip-command", "", "-TT*"),
    "rsync": _hatch("--rsh --rsync-path", "e"),
    "scp": _hatch("", "SoF"),
    "wget": _hatch("--use-askpass --execute --config", "e"),
    "rg": _hatch("--pre --hostname-bin"),
    "ag": _hatch("--pager"),
    "fd": _hatch("--exec --exec-batch", "xX"),
    "fdfind": _hatch("--exec --exec-batch", "xX"),
    "git": _hatch("--config-env --exec-path", "c", "ext::*"),
    "git archive": _hatch("--exec --remote"),
    "git bisect": _hatch(words="run view visualize"),
    "git clone": _hatch("--upload-pack --config --template", "uc", "ext::*"),
    "git config": _hatch(words="*"),
    "git diff": _hatch("--ext-diff --output", only_known=True),
    "git log": _hatch("--ext-diff --output", only_known=True),
    "git show": _hatch("--ext-diff --output", only_known=True),
    "git fetch": _hatch("--upload-pack", "", "ext::*"),
    "git fetch-pack": _hatch("--upload-pack --exec"),
    "git grep": _hatch("--open-files-in-pager", "O"),
    "git init": _hatch("--template"),
    "git ls-remote": _hatch("--upload-pack --exec", "", "ext::*"),
    "git pull": _hatch("--upload-pack", "", "ext::*"),
    "git push": _hatch("--receive-pack --exec", "", "ext::*"),
    "git rebase": _hatch("--exec", "x"),
    "git remote": _hatch(words="ext::*"),
    "git submodule": _hatch(words="foreach ext::*"),
    "gcc": _COMPILER,
    "g++": _COMPILER,
    "cc": _COMPILER,
    "c++": _COMPILER,
    "clang": _COMPILER,
    "clang++": _COMPILER,
    "install": _hatch("--strip-program"),
    "openssl": _hatch(words="-engine -provider* -config", one_dash=True),
    "ip": _hatch(words="netns vrf -batch -b", one_dash=True),
    "find": _hatch(words="-fprint* -fls", one_dash=True),
    "dpkg": _hatch("--pre-invoke --post-invoke --status-logger --install", "i"),
    "file": _hatch("--compile", "C"),
    "ctags": _hatch("--options*"),
    "pandoc": _hatch("--filter --lua-filter --pdf-engine", "F"),
    "convert": _hatch(words="msl:* ephemeral:* @*", one_dash=True),
    "exiftool": _hatch(words="-if* -config -@ -p*", one_dash=True),
}
# Settings that `git -c` may change without anything being run.
_HARMLESS_SETTINGS = (
    "user.name=",
    "user.email=",
    "color.",
    "advice.",
    "core.quotepath=",
    "init.defaultbranch=",
    "commit.gpgsign=",
    "core.autocrlf=",
    "log.date=",
)
_READING = {"--get", "--list", "-l", "--get-all", "--get-regexp", "--show-origin", "--name-only", "--global", "--local"}
_SCRIPTS: dict[str, Callable[[Sequence[Word]], tuple[int, str] | None]] = {
    "awk": find_awk_hatch,
    "gawk": find_awk_hatch,
    "mawk": find_awk_hatch,
    "nawk": find_awk_hatch,
    "original-awk": find_awk_hatch,
    "sed": find_sed_hatch,
    "gsed": find_sed_hatch,
}


def find_opening(program: str, arguments: Sequence[Word]) -> Opening | None:
    """The first hatch that stands open, or that may: of the program itself, or of `program sub-command`."""
    if program in _SCRIPTS:
        found = _SCRIPTS[program](arguments)
        return Opening(*found) if found else None
    if program == "git config" and _only_reads(arguments):
        return None
    hatch = _HATCHES.get(program)
    return _search(program, hatch, arguments) if hatch else None


def _search(program: str, hatch: Hatch, arguments: Sequence[Word]) -> Opening | None:
    for position, word in enumerate(arguments):
        if word.text == "--" and not hatch.words:
            return None
        if _opens(hatch, word, position) and not (program == "git" and _is_harmless(arguments, position)):
            return Opening(position, f"{word.raw} can make {program} run another program")
        if _may_open(hatch, arguments, position) and program != "find":  # which `unwrapping` looks after
            why = f"{word.raw} may turn out to be an option that makes {program} run another program"
            return Opening(position, why)
    return None


def _may_open(hatch: Hatch, arguments: Sequence[Word], position: int) -> bool:
    word, before = arguments[position], arguments[position - 1].text if position else None
    if word.text is not None or not word.may_be_option or hatch.only_known:
        return False
    if word.prefix.startswith("--") and "=" in word.prefix:
        return False  # its name is known, and only its value is not
    is_cluster = before is not None and (before.startswith("-") or (hatch.old_style and position == 1))
    is_value = is_cluster and not word.is_many and before is not None and before[-1:] in tuple(hatch.valued)
    return not is_value


def _opens(hatch: Hatch, word: Word, position: int) -> bool:
    text = word.text if word.text is not None else word.prefix
    if any(text == name or (name.endswith("*") and text.startswith(name[:-1])) for name in hatch.words):
        return True
    if text.startswith("--") and len(text) > 2:
        name = text.partition("=")[0]
        return any(option.startswith(name) for option in hatch.long)
    if hatch.one_dash or len(text) < 2:
        return False
    if text.startswith("-"):
        return any(letter in text[1:] for letter in hatch.short)
    return hatch.old_style and position == 0 and any(letter in text for letter in hatch.short)


def _is_harmless(arguments: Sequence[Word], position: int) -> bool:
    if arguments[position].text != "-c" or position + 1 >= len(arguments):
        return False
    setting = arguments[position + 1]
    return setting.text == "core.pager=cat" or setting.prefix.lower().startswith(_HARMLESS_SETTINGS)


def _only_reads(arguments: Sequence[Word]) -> bool:
    options = {word.text for word in arguments if word.prefix.startswith("-")}
    if any(word.text is None for word in arguments) or not options <= _READING:
        return False
    names = [word for word in arguments if not word.prefix.startswith("-")]
    return len(names) <= 1 and not (names and names[0].text in ("edit", "set", "unset"))
