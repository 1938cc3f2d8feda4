"""The languages that a run can be in: one entry each, nothing else to change."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import NamedTuple

from fumehood.errors import UsageError
from fumehood.frozen import frozen

# Which class of a Java source is the program, and what its file must be called, from the text alone. A guess that is
# wrong is harmless: the compiler or `java` then says in its own words what it misses.
# Sources can be large and hostile, and this runs on the host. No pattern here goes over a character twice.
_MOST_CHARACTERS = 1024 * 1024
_NOISE = re.compile(
    r'"""(?:\\.|[^\\])*?(?:"""|\Z)|"(?:\\.|[^"\\\n])*+"?|' + r"'(?:\\.|[^'\\\n])*+'?|//[^\n]*+|/\*.*?(?:\*/|\Z)",
    re.DOTALL,
)
_TOKENS = re.compile(
    r"(?P<brace>[{}])|(?P<public>\bpublic\b)|(?P<main>\bvoid\s++main\s*+\()|\bpackage\s++(?P<package>[\w.]++)\s*+;"
    r"|\b(?:class|record|interface|enum)\s++(?P<type>\w++)"
)
_DEFAULT = "Main"


class _Type:
    __slots__ = ("has_main", "is_public", "name")

    def __init__(self, name: str, *, is_public: bool) -> None:
        self.name, self.is_public, self.has_main = name, is_public, False


def find_names(source: bytes) -> tuple[str, str]:
    """The file's name, without suffix, and the main class's, with its package."""
    package, types = _top_level(_NOISE.sub(" ", source[:_MOST_CHARACTERS].decode("utf-8", "replace")))
    public = next((found for found in types if found.is_public), None)
    starting = [found for found in types if found.has_main]
    main = public if public in starting else next(iter((*starting, *types)), None)
    program = main.name if main else _DEFAULT
    return public.name if public else program, f"{package}.{program}" if package else program


def _top_level(text: str) -> tuple[str, list[_Type]]:
    package, types, depth, is_public = "", list[_Type](), 0, False
    for token in _TOKENS.finditer(text):
        if token["brace"]:
            depth += 1 if token["brace"] == "{" else -1
            is_public = False
        elif token["main"] and types:
            types[-1].has_main = types[-1].has_main or depth == 1
        elif depth == 0 and token["type"]:
            types.append(_Type(token["type"], is_public=is_public))
        elif depth == 0:
            package = token["package"] or package
            is_public = is_public or token["public"] is not None
    return package, types


class SourceNames(NamedTuple):
    """How a compiler wants the source's file to be called, without its suffix, and how the program is called."""

    file: str
    program: str


def _main(source: bytes) -> SourceNames:
    return SourceNames("main", "main")


def _main_class(source: bytes) -> SourceNames:
    from fumehood.backends.languages import find_names

    return SourceNames(*find_names(source))


@frozen
class Toolchain:
    """From a source to a program, in two commands. What stands in braces is filled in for each run:

    {source} the source's file, {build} the folder for the product, {workspace} the workspace, {program} the name that
    the source gives to the program, {memory} and {cpus} the policy's limits in bytes and whole processors.
    """

    compiling: tuple[str, ...]
    running: tuple[str, ...] = ("{build}/program",)
    also_needs: tuple[str, ...] = ()
    """Commands that the compiler itself calls."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    """The compiler's."""
    names: Callable[[bytes], SourceNames] = _main

    @property
    def commands(self) -> tuple[str, ...]:
        own = (self.compiling[0], self.running[0])
        return tuple(command for command in (*own, *self.also_needs) if not command.startswith("{"))


@frozen
class Language:
    name: str
    suffixes: tuple[str, ...]
    interpreter: tuple[str, ...] | None = None
    """The command in front of the script."""
    toolchain: Toolchain | None = None
    """The compiler of a compiled language. Without one and without `interpreter` it is Python, in the warm process."""
    also_needs: tuple[str, ...] = ()
    """Commands that the interpreter's own command starts."""
    aliases: tuple[str, ...] = ()
    debian: tuple[str, ...] = ()
    """Debian's packages that an image needs for it."""

    @property
    def commands(self) -> tuple[str, ...]:
        """What a sandbox must have for it, as names in PATH or as paths."""
        if self.toolchain:
            return self.toolchain.commands
        return (*self.interpreter[:1], *self.also_needs) if self.interpreter else ()

    def script_name(self, source: bytes) -> str:
        """The file's name when the caller has none."""
        names = self.toolchain.names(source) if self.toolchain else _main(source)
        return names.file + self.suffixes[0]


# Node removes the types itself since 22.6. It knows the option to this day, and says nothing clear where it does not.
_TYPESCRIPT = r"""
found=$(node --version) || exit
case $found in
    v[0-9].*|v1[0-9].*|v2[01].*|v22.[0-5].*)
        echo "TypeScript needs node 22.6 or newer, and this sandbox has $found;" \
            "write JavaScript, or use an image or a mount with a newer node" >&2
        exit 127;;
esac
exec node --experimental-strip-types --disable-warning=ExperimentalWarning "$@"
"""
_C = ("-O1", "-iquote", "{workspace}", "-o", "{build}/program")
# Java sees neither the sandbox's memory nor its processors, and would plan for the whole machine's.
_JAVA_LIMITS = ("-XX:+UseSerialGC", "-XX:MaxRAM={memory}", "-XX:ActiveProcessorCount={cpus}")
# It reserves address space for more code than programs have here; without cgroups that space is the limit.
_JAVA_SPACE = ("-XX:CompressedClassSpaceSize=64m", "-XX:ReservedCodeCacheSize=64m")
_JAVA = (*_JAVA_LIMITS, *_JAVA_SPACE, "-XX:MaxRAMPercentage=50")
_FOR_COMPILER = tuple(f"-J{option}" for option in (*_JAVA, "-XX:TieredStopAtLevel=1"))

_ENTRIES = (
    Language("python", (".py",), aliases=("py", "python3")),
    Language("sh", (".sh",), ("/bin/sh",), aliases=("shell",)),
    Language("bash", (".bash",), ("/bin/bash",)),
    Language("javascript", (".js", ".mjs", ".cjs"), ("node",), aliases=("js", "node"), debian=("nodejs",)),
    Language(
        "typescript",
        (".ts", ".mts", ".cts"),
        ("/bin/sh", "-c", _TYPESCRIPT, "node"),
        also_needs=("node",),
        aliases=("ts",),
    ),
    Language(
        "c",
        (".c",),
        toolchain=Toolchain(("cc", *_C, "-x", "c", "{source}", "-lm")),
        debian=("gcc", "libc6-dev"),
    ),
    Language(
        "c++",
        (".cpp", ".cc", ".cxx"),
        toolchain=Toolchain(("c++", "-std=c++20", *_C, "-x", "c++", "{source}")),
        aliases=("cpp", "cxx"),
        debian=("g++",),
    ),
    Language(
        "rust",
        (".rs",),
        toolchain=Toolchain(
            (
                # One thread for the code: 16, as is usual, take twice the memory and gain nothing on one processor.
                *("rustc", "--edition=2021", "--crate-name=main", "-Copt-level=1", "-Ccodegen-units=1"),
                *("-o", "{build}/program", "{source}"),
            ),
            also_needs=("cc",),
        ),
        aliases=("rs",),
        debian=("rustc", "gcc", "libc6-dev"),
    ),
    Language(
        "go",
        (".go",),
        toolchain=Toolchain(
            ("go", "build", "-o", "{build}/program", "{source}"),
            # Nothing is fetched, no C compiler is called.
            environment={"CGO_ENABLED": "0", "GOPROXY": "off", "GOTOOLCHAIN": "local"},
        ),
        aliases=("golang",),
        debian=("golang-go",),
    ),
    Language(
        "java",
        (".java",),
        toolchain=Toolchain(
            ("javac", *_FOR_COMPILER, "-cp", "{workspace}", "-d", "{build}", "{source}"),
            ("java", *_JAVA, "-cp", "{build}:{workspace}", "{program}"),
            names=_main_class,
        ),
        debian=("default-jdk-headless",),
    ),
)
LANGUAGES = {language.name: language for language in _ENTRIES}


def find_language(name: str) -> Language:
    for language in LANGUAGES.values():
        if name == language.name or name in language.aliases:
            return language
    raise UsageError(f"unknown language {name!r}{_nearest(name)}; available: {', '.join(LANGUAGES)}")


def language_of_file(suffix: str) -> Language | None:
    return next((language for language in LANGUAGES.values() if suffix.lower() in language.suffixes), None)


def _nearest(name: str) -> str:
    from difflib import get_close_matches

    found = get_close_matches(name.lower(), LANGUAGES, n=1)
    return f" (did you mean {found[0]!r}?)" if found else ""
