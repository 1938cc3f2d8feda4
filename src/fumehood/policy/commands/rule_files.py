"""The files that rules let be run: no line may write one, or put another in its place.

Which of its words a program takes for code is its own affair: `bash -e build.sh`, `make -f build.mk`. So every word of
a rule that may name a file counts, wherever it stands, but for tools of which it is known that they start nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from fumehood.policy.commands import programs
from fumehood.policy.commands.exec_options import find_script_problem
from fumehood.policy.commands.options import find_unsafe_word
from fumehood.policy.commands.program_name import is_known_tool, known_name, resolve
from fumehood.policy.commands.rules import CommandRule
from fumehood.policy.commands.runners import is_harmless_option
from fumehood.policy.commands.syntax import known
from fumehood.policy.commands.tools import COMPILERS, TOOLS
from fumehood.policy.commands.variables import names
from fumehood.policy.commands.write_targets import WriteTargets

_LETTERS = re.compile(r"-[A-Za-z]+")
# Within a word: the values of options and variables, lists, and the commands of a text.
_BETWEEN = re.compile(r"[\s;&|<>()'\"`$:,=@]+")
# After these stands a file of code or of orders, whatever its name: `make -f rules`, `gdb -x commands`.
_NAMING_FILES = names(
    """
    -f -x -file -init -buildfile --file --makefile --command --script --source --init-file --rcfile --init-script
    --build-file --justfile --rakefile --noxfile --snakefile --sconstruct --gemfile --from-file --load --config
    """
)
_NAMING_FILES_TOO = {
    **dict.fromkeys(names("vi vim nvim view ex rvim vimdiff"), names("-S -s -u")),
    **dict.fromkeys(names("tox pytest screen"), names("-c")),
    **dict.fromkeys(names("snakemake lldb"), names("-s")),
    **dict.fromkeys(programs.AWK, names("-E -i -l --exec --include")),
    **dict.fromkeys(names("pip pip3"), names("-r -c --requirement --constraint")),
    "cmake": names("-P -C"),
    "emacs": names("-l"),
    "gradle": names("-b -I -c"),
    "parallel": names("-a"),
}
_NAMING_NONE = {"pytest": names("-f -x")}
# Of these a rule spells options that are not known, which may name a file of orders: `curl -K`.
_WITH_FILES_OF_OPTIONS = (TOOLS.keys() | COMPILERS) - programs.FAMILIES.keys()
# In one word with others, too: `sed -nfscript`.
_WITH_LETTERS = programs.AWK | programs.SED | names("make gmake gdb just ninja psql")
_EXECUTING_OF_FIND = frozenset({"-exec", "-execdir", "-ok", "-okdir"})


@dataclass(frozen=True, slots=True)
class RuleFiles:
    """The last parts of their paths, and the folders that these lie in, as patterns."""

    names: frozenset[str] = frozenset()
    folders: frozenset[str] = frozenset()


def files_to_run(rules: Iterable[CommandRule], writable: Sequence[str]) -> RuleFiles:
    """By paths that a line could write."""
    paths = [found for rule in rules for path in paths_of(rule) if (found := _below(path, writable))]
    parts = [[part for part in path.split("/") if part.strip(".")] for path in paths]
    last = frozenset(part[-1] for part in parts if part)
    return RuleFiles(last, frozenset(folder for part in parts for folder in part[:-1]))


def is_local(rule: CommandRule) -> bool:
    """Whether the code that it runs depends on the folder: `bash build.sh` is another script after `cd`."""
    name = known_name(rule.program)
    runs_code = "/" in name or name in programs.RUNNING_FILES | programs.INTERPRETERS | programs.FAMILIES.keys()
    return (runs_code or is_known_tool(name)) and any(not path.startswith("/") for path in paths_of(rule))


@lru_cache(maxsize=1024)
def paths_of(rule: CommandRule) -> tuple[str, ...]:
    """Every word that may be a path. Shells and their like run files whose names have no ending, too."""
    own, name = (rule.program,) if "/" in rule.program else (), known_name(rule.program)
    if _starts_nothing(rule):
        return own
    resolved = resolve(name, [known(word) for word in rule.words[1:]])
    is_shown = resolved.subcommand is not None and not resolved.runs_code  # -f of `docker logs` names no file
    takes_any, found = name in programs.RUNNING_FILES, list[str]()
    for before, word in pairwise(rule.words):
        is_meant = (takes_any and before != "-m") or (not is_shown and _names_file(name, before))
        may_be_file = is_meant and not word.startswith("-") and word.strip("*")
        found += [part for part in _parts(word) if may_be_file or "." in part or "/" in part]
        found += () if is_shown else _attached(name, word)
    return (*own, *found)


def _names_file(program: str, option: str) -> bool:
    if option in _NAMING_NONE.get(program, ()) or is_harmless_option(program, option):
        return False
    if option.startswith("-") and program in _WITH_FILES_OF_OPTIONS:
        return True
    return option in _NAMING_FILES or option in _NAMING_FILES_TOO.get(program, ())


def _attached(program: str, word: str) -> Iterator[str]:
    """Files in one word with the option that names them."""
    option, _, value = word.partition("=")
    if value.strip("*") and _names_file(program, option):
        yield value
    if program in _WITH_LETTERS and (letters := _LETTERS.match(word)):
        yield from (word[at + 1 :] for at in range(1, letters.end()) if word[at] in "fx" and word[at + 1 :].strip("*"))


def _starts_nothing(rule: CommandRule) -> bool:
    """A tool of which it is known, or whose inner command needs a rule of its own."""
    name, words = known_name(rule.program), [known(word) for word in rule.words[1:]]
    if name == "find":
        return not _EXECUTING_OF_FIND & set(rule.words)
    resolved = resolve(name, words)
    if not is_known_tool(name) or resolved.runs_code:
        return False
    if name in programs.WRAPPERS:
        return True
    targets, tool = WriteTargets(), name if resolved.subcommand is None else resolved.tool
    given = words if resolved.subcommand is None else resolved.arguments[len(tool.split()) - 1 :]
    options = TOOLS[tool].written | TOOLS[tool].spelled if tool in TOOLS else set[str]()
    problem = find_script_problem(name, given, targets) or find_unsafe_word(tool, given, targets, frozenset(options))
    return problem is None


def _parts(word: str) -> Iterator[str]:
    for part in filter(None, _BETWEEN.split(word)):
        yield part
        if re.match(r"-[A-Za-z]", part) and "/" not in part:
            # `-fbuild.mk`, and `-nfbuild.mk`: a value may begin behind any letter.
            yield from (part[start:] for start in range(2, part.rfind(".")))


def _below(path: str, writable: Sequence[str]) -> str | None:
    """The path below the folder where the sandbox starts, or below a place that may be written."""
    if not path.startswith("/"):
        return path
    return next((path.removeprefix(place) for place in writable if path.startswith(f"{place}/")), None)
