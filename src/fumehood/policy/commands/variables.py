"""Variables that change what a command line means, and values that arithmetic would take for code."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fumehood.policy.commands.programs import names
from fumehood.policy.commands.script import Arithmetic, Assignment
from fumehood.policy.commands.verdict import RefusedError
from fumehood.policy.commands.words import Word

Report = Callable[[RefusedError], None]

# Shells, loaders, interpreters and tools take orders from these, exported or not: they may be exported already.
_PREFIXES = tuple(
    names(
        """
    GTK_ GIO_ QT_ R_ JULIA_ LD_ DYLD_ BASH GIT_ PYTHON PERL RUBY NODE_ NPM_ JAVA_ JDK_ _JAVA LESS GCONV_ CARGO_
    RUSTC RUSTUP GOROOT GOENV GOTOOL LUA_ PHP_ SSH_ SUDO_ DOCKER_ KUBE XDG_ AWK GAWK TAR_ GREP_ RIPGREP_ CURL_
    RSYNC_ PIP_ UV_ PROMPT_ HIST GLIBC_ MALLOC_ OPENSSL_
    """
    )
)
_NAMES = names(
    """
    VIMINIT EXINIT GVIMINIT PATH HOME SHELL EDITOR VISUAL PAGER BROWSER IFS ENV CDPATH GLOBIGNORE OPTIND OPTERR
    POSIXLY_CORRECT TMPDIR PWD OLDPWD UID EUID PPID SECONDS RANDOM LINENO PS0 PS1 PS2 PS3 PS4 SHELLOPTS FUNCNAME
    FUNCNEST FPATH TERMINFO INPUTRC CC CXX AR AS LD NM CPP FC STRIP MAKE MAKEFLAGS MAKEFILES MAIL MAILPATH FIGNORE
    TIMEFORMAT TMOUT MAPFILE LOCPATH NLSPATH TZDIR HOSTALIASES RES_OPTIONS MANPATH MANPAGER MANOPT WGETRC ZDOTDIR
    DISPLAY EXECIGNORE
    """
)
# Other programs may take orders from these, so that they are not exported to any.
_PARTS = tuple(
    names(
        """
    PATH PRELOAD LIBRARY EDITOR VISUAL PAGER SHELL BROWSER COMMAND CMD EXEC OPTIONS OPTS FLAGS HOOK STARTUP PROXY
    ASKPASS HOME CONFIG WRAPPER RCFILE PLUGIN LOADER
    """
    )
)
_HARMLESS = names(
    """
    PYTHONUNBUFFERED PYTHONDONTWRITEBYTECODE PYTHONIOENCODING PYTHONHASHSEED PYTHONUTF8 NODE_ENV RUST_BACKTRACE
    RUST_LOG GOOS GOARCH GOMAXPROCS TERM GIT_PAGER_IN_USE GIT_TERMINAL_PROMPT PIP_NO_INPUT CCACHE_DISABLE REPLY
    """
)
_VALUES = {"GIT_PAGER": {"cat", ""}, "PAGER": {"cat", ""}, "MANPAGER": {"cat", ""}}
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGNING = re.compile(r"(?<![=!<>])=(?!=)|<<=|>>=|\+\+|--")
_NUMBER = re.compile(r"[+-]?[0-9]+")


class Ledger:
    """What a whole line assigns and computes with, its inner scripts included."""

    def __init__(self) -> None:
        self._doubtful: set[str] = set()
        self._arithmetic: list[tuple[Arithmetic, tuple[int, int], Report]] = []
        self._reports: list[Report] = []

    @contextmanager
    def reporting(self, report: Report) -> Iterator[None]:
        """Where to tell what is found in one script, even if that is known only when all of them were read."""
        self._reports.append(report)
        try:
            yield
        finally:
            self._reports.pop()

    def assign(self, assignment: Assignment, shown: tuple[int, int], *, is_exported: bool = False) -> None:
        """Raises RefusedError for a variable that others take orders from."""
        _check_name(assignment.name, assignment.values, shown, is_exported=is_exported)
        if not assignment.values or not all(_is_number(word) for word in assignment.values):
            self._doubtful.add(assignment.name)

    def compute(self, arithmetic: Arithmetic, shown: tuple[int, int]) -> None:
        self._arithmetic.append((arithmetic, shown, self._reports[-1]))

    def check(self) -> None:
        """At the end, when everything that is assigned is known: a value may be an expression that runs a command."""
        for arithmetic, shown, report in self._arithmetic:
            try:
                self._check_arithmetic(arithmetic.text, shown)
            except RefusedError as error:
                report(error)

    def _check_arithmetic(self, text: str, shown: tuple[int, int]) -> None:
        used = _IDENTIFIER.findall(text)
        if _ASSIGNING.search(text):
            for name in used:
                _check_name(name, (), shown)
        doubtful = next((name for name in used if name in self._doubtful), None)
        if doubtful:
            why = f"the value of {doubtful} is not surely a number, and arithmetic would evaluate it as code"
            raise RefusedError(*shown, why, "compare it with [ ... ], or assign plain numbers alone")
        if re.search(r"\$[0-9@*]|[^\w\s+\-*/%<>=!&|^~?:,#;()$]", text):
            raise RefusedError(*shown, "arithmetic would evaluate this as code", "use numbers and names alone")


def _check_name(name: str, values: tuple[Word, ...], shown: tuple[int, int], *, is_exported: bool = False) -> None:
    if not _is_influential(name, is_exported=is_exported):
        return
    if values and all(word.text in _VALUES.get(name, ()) for word in values):
        return
    why = f"{name} changes how commands are found or what they do"
    raise RefusedError(*shown, why, "leave it as it is; the policy's author can set it for the whole sandbox")


def _is_influential(name: str, *, is_exported: bool) -> bool:
    if name in _HARMLESS:
        return False
    upper = name.upper()
    if name.islower():
        return upper.endswith("_PROXY") or name in ("auto_resume", "histchars")
    return upper in _NAMES or upper.startswith(_PREFIXES) or (is_exported and any(part in upper for part in _PARTS))


def _is_number(word: Word) -> bool:
    if word.text is not None:
        return _NUMBER.fullmatch(word.text) is not None
    # What arithmetic gives is a number.
    return re.fullmatch(r"\$\(\(.*\)\)|\$[#?]|\{-?[0-9]+\.\.-?[0-9]+\}", word.raw, re.DOTALL) is not None
