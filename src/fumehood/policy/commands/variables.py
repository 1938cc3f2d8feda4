"""Variables: which ones a line may set, and what is known of their values.

Shells, loaders and programs take orders from many variables, so what is exported has to be known to be harmless.
Arithmetic evaluates values as code, so names in it have to be set to numbers by the line itself, and nowhere to more.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from fumehood.policy.commands.decision import RefusalError
from fumehood.policy.commands.syntax import NUMBER, PLAIN, Arithmetic, Assignment, Hole, Piece, ShellScript, Word, known


def names(text: str) -> frozenset[str]:
    """Set apart by blanks: long lists are easier to read without marks."""
    return frozenset(text.split())


# Bash's own, and those that are exported already.
_PREFIXES = tuple(
    names(
        """
    GTK_ GIO_ QT_ R_ JULIA_ LD_ DYLD_ BASH GIT_ PYTHON PERL RUBY NODE_ NPM_ JAVA_ JDK_ _JAVA LESS GCONV_ CARGO_
    RUSTC RUSTUP GOROOT GOENV GOTOOL LUA_ PHP_ SSH_ SUDO_ DOCKER_ KUBE XDG_ AWK GAWK TAR_ GREP_ RIPGREP_ CURL_
    RSYNC_ PIP_ UV_ YARN_ PNPM_ PROMPT_ HIST GLIBC_ MALLOC_ OPENSSL_ READLINE_ COMP COPROC EPOCH APT_ AWS_ GH_
    HELM_ CLOUDSDK_ KRB5 TERMINFO GCC_ VALGRIND_
    """
    )
)
_NAMES = names(
    """
    VIMINIT EXINIT GVIMINIT PATH HOME SHELL EDITOR VISUAL PAGER BROWSER IFS ENV CDPATH GLOBIGNORE OPTIND OPTERR OPTARG
    POSIXLY_CORRECT TMPDIR PWD OLDPWD UID EUID PPID SECONDS RANDOM SRANDOM LINENO PS0 PS1 PS2 PS3 PS4 SHELLOPTS
    FUNCNAME FUNCNEST FPATH INPUTRC CC CXX AR AS LD NM CPP FC STRIP MAKE MAKEFLAGS MAKEFILES MAIL MAILPATH
    FIGNORE TIMEFORMAT TMOUT MAPFILE LOCPATH NLSPATH TZDIR HOSTALIASES RES_OPTIONS MANPATH MANPAGER MANOPT WGETRC
    SYSTEM_WGETRC GNUPGHOME _POSIX2_VERSION
    ZDOTDIR DISPLAY EXECIGNORE PIPESTATUS DIRSTACK GROUPS HOSTFILE IGNOREEOF CHILD_MAX SHLVL REPLY
    """
)
_PREFIXES_OF_SMALL_LETTERS = ("npm_", "pnpm_", "yarn_")
# Before an underscore may stand the name of a program, whose setting it is then: `yarn_rc_filename`.
_WITHOUT_PROGRAM = re.compile(r"[a-z][a-z0-9]*")
_OWN_OF_SMALL_LETTERS = names("auto_resume histchars")
# In others a byte of a letter may be a backslash, so that the shell reads another line than was judged.
_LOCALE = re.compile(r"(?:C|POSIX|(?:C|[a-z]{2,3}(?:_[A-Z]{2})?)\.(?:UTF|utf)-?8)?")
_LANGUAGE = r"(?:C|POSIX|[a-z]{2,3}(?:_[A-Z]{2})?(?:\.(?:UTF|utf)-?8)?)"
_LANGUAGES = re.compile(rf"(?:{_LANGUAGE}(?::{_LANGUAGE})*)?")
_ZONE = re.compile(
    r"(?:[A-Za-z]{1,8}(?:[-+]?[0-9]{1,2}(?:[A-Z]{3,4})?)?|[A-Z][A-Za-z]+(?:/[A-Z][A-Za-z_-]*(?:[-+][0-9]{1,2})?){1,2})?"
)
_TERMINAL = re.compile(r"(?:[a-z][a-z0-9+.-]*)?")
_SWITCH = re.compile(r"[0-9]*|true|false|yes|no|on|off")
_LETTERS = re.compile(r"[A-Za-z0-9]*")
# Neither an option, nor code, nor the name of a file elsewhere.
_PLAIN_WORD = re.compile(r"(?:[A-Za-z0-9_*][A-Za-z0-9_.,:=+*-]*)?")
# Which variables may be exported, and with which values: programs that get these do what they do anyway. Positive,
# since for others even a number is the name of a file that gives orders: `APT_CONFIG=1`.
_EXPORTED = {
    **dict.fromkeys(("LANGUAGE",), _LANGUAGES),
    **dict.fromkeys(("TZ",), _ZONE),
    **dict.fromkeys(("TERM",), _TERMINAL),
    **dict.fromkeys(names("MPLBACKEND DEBIAN_FRONTEND NODE_ENV GOOS GOARCH PYTHONHASHSEED RUST_BACKTRACE"), _LETTERS),
    **dict.fromkeys(names("CI DEBUG VERBOSE RUST_LOG LOG_LEVEL PYTHONIOENCODING CARGO_TERM_COLOR"), _PLAIN_WORD),
    **dict.fromkeys(
        names(
            """
            NO_COLOR FORCE_COLOR CLICOLOR CLICOLOR_FORCE COLUMNS LINES PORT SOURCE_DATE_EPOCH PYTHONUNBUFFERED
            PYTHONDONTWRITEBYTECODE PYTHONUTF8 PYTHONFAULTHANDLER GOMAXPROCS CGO_ENABLED GIT_TERMINAL_PROMPT
            GIT_PAGER_IN_USE GIT_OPTIONAL_LOCKS PIP_NO_INPUT PIP_DISABLE_PIP_VERSION_CHECK CCACHE_DISABLE
            OMP_NUM_THREADS OPENBLAS_NUM_THREADS MKL_NUM_THREADS TOKENIZERS_PARALLELISM TF_CPP_MIN_LOG_LEVEL
            CUDA_VISIBLE_DEVICES NODE_NO_WARNINGS npm_config_audit npm_config_fund npm_config_progress npm_config_color
            npm_config_yes yarn_enable_colors yarn_enable_progress_bars yarn_enable_telemetry
            """
        ),
        _SWITCH,
    ),
}
# These may be exported already.
_ALWAYS_CHECKED = frozenset({"LANGUAGE", "TZ", "TERM"})
_EXAMPLES = {
    "LANGUAGE": "use names of languages, such as de_DE:en",
    "TZ": "use the name of a zone, such as UTC or Europe/Berlin",
    "TERM": "use the name of a terminal, such as xterm-256color",
}
_VALUES = {"GIT_PAGER": {"cat", ""}, "PAGER": {"cat", ""}, "MANPAGER": {"cat", ""}}
_COUNTED_BY_BASH = names("RANDOM SECONDS LINENO")
# Without zeros in front: arithmetic takes 08 for an error.
_DECIMAL = r"(?:0|[1-9][0-9]{0,17})"
_NUMBER = re.compile(rf"-?{_DECIMAL}")
_NUMBERS = re.compile(rf"\{{-?{_DECIMAL}\.\.-?{_DECIMAL}\}}|\$\(seq( {_DECIMAL})+\)")
_TERM = rf"(?:\$?[A-Za-z_]\w*(?:\+\+|--)?|\$[#?]|\$\{{#?\w+\}}|{_DECIMAL})"
# Sums, products and comparisons of numbers, and what is set to them.
_SURE = re.compile(rf"\s*(?:[A-Za-z_]\w*\s*[-+*]?=\s*)?{_TERM}(?:\s*(?:[-+*]|<=?|>=?|==|!=|&&|\|\|)\s*{_TERM})*\s*")
_PLAIN_VALUE = re.compile(r"(?:\./)?\w[\w%+,-]*(?:[./]\w[\w%+,-]*)*/?")
_ARITHMETIC = re.compile(
    r"(?P<name>\$?[A-Za-z_]\w*|\$[#?]|\$\{#?\w+\})|0[xX][0-9a-fA-F]+|[0-9]+|\*\*|[-+*/%<>=!&|^~?:,;()\s]"
)
_SETTING = re.compile(r"([A-Za-z_]\w*)\s*=(?!=)")
_ASSIGNING = re.compile(r"(?<![=!<>])=(?!=)|<<=|>>=|\+\+|--")


@dataclass(frozen=True, slots=True)
class _Values:
    """What is known of all the values of one variable; of none at all nothing is."""

    patterns: tuple[str, ...] = ()
    has_globs: bool = False
    are_plain: bool = False
    are_found: bool = False
    are_numbers: bool = False


_NO_VALUES = _Values()


def _summarized(values: Sequence[Word]) -> _Values:
    patterns = tuple(dict.fromkeys(map(_pattern, values)))
    return _Values(
        patterns,
        any("*" in pattern for pattern in patterns),
        all(map(_is_plain, values)),
        all(map(_is_found, values)),
        all(map(_is_number, values)),
    )


class VariableTracker:
    """What one script assigns, all of it: a loop may come back to what stands further up."""

    def __init__(self, assignments: Iterable[Assignment], script: ShellScript, inherited: frozenset[str]) -> None:
        """`inherited` are exported by the shell that starts this one, which may give them any value."""
        self._is_bash = script.is_bash
        self._inherited = inherited
        self._summaries: dict[str, _Values] = {}
        self._settled: dict[str, list[tuple[int, float]]] = {}
        for name, start, end in script.settled:
            regions = self._settled.setdefault(name, [])
            if not regions or regions[-1][1] < end:  # once it is set for good, later values change nothing
                regions.append((start, end))
        self._values: dict[str, list[Word] | None] = {}
        for assignment in assignments:
            if not assignment.values:
                self._values[assignment.name] = None
            elif (found := self._values.setdefault(assignment.name, [])) is not None:
                found += assignment.values

    def values_of(self, name: str) -> Sequence[Word] | None:
        """None where they come from elsewhere; none at all where the script leaves it as it is."""
        return None if name in self._inherited else self._values.get(name, ())

    def _is_own(self, name: str, at: int) -> bool:
        """Whether it surely has a value of this script: otherwise it may come from the environment."""
        if name in self._inherited:
            return False
        return any(start <= at <= end for start, end in self._settled.get(name, ()))

    def is_number(self, name: str, at: int) -> bool:
        if name in _COUNTED_BY_BASH:
            return self._is_bash and name not in self._inherited
        return self._is_own(name, at) and self._summary(name).are_numbers

    def _summary(self, name: str) -> _Values:
        """Made once for each name: a line may set it often, and use it as often."""
        if name not in self._summaries:
            values = self._values.get(name)
            self._summaries[name] = _summarized(values) if values else _NO_VALUES
        return self._summaries[name]

    def settled(self, word: Word) -> Word:
        """The word with the known values of its variables filled in."""
        if word.text is not None:
            return word
        return replace(word, pieces=tuple(self._settled_piece(piece, word.start) for piece in word.pieces))

    def _settled_piece(self, piece: Piece, at: int) -> Piece:
        if isinstance(piece, Hole) and piece.trimmed:
            name, ending = piece.trimmed
            whole = self._settled_piece(Hole(piece.is_many, name), at)
            if isinstance(whole, str) or not whole.choices:
                return piece
            return replace(whole, choices=tuple(dict.fromkeys(_trimmed(whole.choices, ending))))
        if isinstance(piece, str) or piece.name is None:
            return piece
        values = self._summary(piece.name) if self._is_own(piece.name, at) else _NO_VALUES
        # What a glob finds may have blanks in it, and is one word only in quotes.
        is_whole = not piece.is_many or not values.has_globs
        if is_whole and values.are_plain:
            return replace(PLAIN, is_many=piece.is_many, choices=values.patterns)
        if is_whole and values.are_found:
            return Hole(is_glob=True, choices=values.patterns)
        return replace(NUMBER, is_many=piece.is_many) if self.is_number(piece.name, at) else piece

    def check_arithmetic(self, text: str, shown: tuple[int, int]) -> None:
        """Raises RefusalError for what may be more than numbers."""
        at = 0
        while at < len(text):
            found = _ARITHMETIC.match(text, at)
            if found is None:
                raise RefusalError(*shown, "arithmetic: not understood", "use numbers and names of numbers alone")
            name = (found["name"] or "").strip("${}")
            is_set = _SETTING.match(text, at) is not None  # and its value is not read
            if name and name not in "#?" and "#" not in name and not is_set and not self.is_number(name, shown[0]):
                why = f"arithmetic would evaluate the value of {name} as code, and it is not surely a number"
                raise RefusalError(*shown, why, f"set {name} to plain numbers alone before, or compare with [ ... ]")
            at = found.end()
        if _ASSIGNING.search(text):
            for name in re.findall(r"[A-Za-z_]\w*", text):
                check_assignment(name, (known("0"),), shown)


def may_fail(arithmetic: str) -> bool:
    """Whether it is not sure that the shell can calculate it: it may divide by 0."""
    return not all(_SURE.fullmatch(part) for part in re.split("[;,]", arithmetic))


def assigned_numbers(arithmetic: Iterable[Arithmetic]) -> Iterator[Assignment]:
    """What arithmetic assigns is a number."""
    for part in arithmetic:
        for found in _SETTING.finditer(part.text):
            yield Assignment(found[1], (known("0"),), part.start, part.end)


def check_assignment(name: str, values: tuple[Word, ...], shown: tuple[int, int], *, is_exported: bool = False) -> None:
    """Raises RefusalError for a variable that others take orders from, or may.

    Without `values` the value comes from elsewhere.
    """
    if name in _EXPORTED:
        if (is_exported or name in _ALWAYS_CHECKED) and not _are_all(_EXPORTED[name], values):
            why = f"{name} goes to programs, with a value that is not known to be harmless"
            raise RefusalError(*shown, why, _EXAMPLES.get(name, "use a plain word or a number"))
        return
    if values and all(word.text in _VALUES.get(name, ()) for word in values):
        return
    if name == "LANG" or name.startswith("LC_"):
        if _are_all(_LOCALE, values):
            return
        raise RefusalError(*shown, f"{name} changes how the shell reads letters", "use C.UTF-8 or another UTF-8 locale")
    check_name(name, shown)
    if is_exported and not (_WITHOUT_PROGRAM.fullmatch(name) and _are_all(_SWITCH, values)):
        why = f"programs may take orders from {name}, which is exported"
        fix = "set it where the run is started (-e, or env= in Python), or do not export it"
        raise RefusalError(*shown, why, f"{fix}; variables such as CI, DEBUG, NO_COLOR and TZ may be exported")


def check_name(name: str, shown: tuple[int, int]) -> None:
    """The same for a variable whose value is taken away, or goes to programs as it is."""
    if name not in _EXPORTED and (name == "_" or _is_influential(name)):
        why = f"{name} changes how commands are found or what they do"
        raise RefusalError(*shown, why, "leave it as it is; the policy's author can set it for the whole sandbox")


def _are_all(allowed: re.Pattern[str], values: tuple[Word, ...]) -> bool:
    return bool(values) and all(word.text is not None and allowed.fullmatch(word.text) for word in values)


def _is_influential(name: str) -> bool:
    if name.islower():
        return name.endswith("_proxy") or name.startswith(_PREFIXES_OF_SMALL_LETTERS) or name in _OWN_OF_SMALL_LETTERS
    upper = name.upper()
    return upper in _NAMES or upper.startswith(_PREFIXES)


def _is_number(word: Word) -> bool:
    if word.text is not None:
        return _NUMBER.fullmatch(word.text) is not None
    is_one = len(word.pieces) == 1 and all(hole.is_number for hole in word.holes)
    return is_one or _NUMBERS.fullmatch(word.raw) is not None


def _is_plain(word: Word) -> bool:
    """A name or a path that begins with a letter, and goes neither up nor into hidden folders."""
    return bool(word.prefix) and _is_found(word)


def _is_found(word: Word) -> bool:
    """The same, but a glob may be the beginning, and find a name that begins with a dash."""
    if not all("*" not in piece if isinstance(piece, str) else piece.is_glob for piece in word.pieces):
        return False
    text = _pattern(word).replace("*", "x")
    return _PLAIN_VALUE.fullmatch(text) is not None


def _trimmed(patterns: Iterable[str], ending: str) -> Iterator[str]:
    for pattern in patterns:
        yield from (pattern, pattern.removesuffix(ending))
        if "*" in pattern:  # what it finds may have that ending, and lose more than stands in the pattern
            yield pattern[: pattern.rindex("*") + 1]


def _pattern(word: Word) -> str:
    return "".join(piece if isinstance(piece, str) else "*" for piece in word.pieces)
