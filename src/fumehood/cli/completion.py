"""`hood completion bash | zsh | fish`: a script that completes commands, options and file names.

Written once from the parsers themselves; the shell needs no Python to complete.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import cast

from fumehood.backends.languages import LANGUAGES
from fumehood.cli.arguments import Parser
from fumehood.cli.commands import COMMANDS
from fumehood.policy.named import NAMES

_INSTALL = """\
bash:  echo 'source <(hood completion bash)' >> ~/.bashrc
zsh:   echo 'source <(hood completion zsh)' >> ~/.zshrc
fish:  hood completion fish > ~/.config/fish/completions/hood.fish
"""
_VALUES = {
    "--language": " ".join(LANGUAGES),
    "--backend": "auto native docker gvisor microvm",
    "--policy": " ".join(NAMES),
}
# Options whose value may be a file as well.
_TAKE_FILES = {"--policy"}

_BASH = """\
_hood() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} place= words= only=
  (( COMP_CWORD > 1 )) && place=${{COMP_WORDS[1]}}
  (( COMP_CWORD > 2 )) && case $place in {nested}) place+=" ${{COMP_WORDS[2]}}" ;; esac
  case $before in
{values}
  esac
  case $place in
{places}
  esac
  if [[ $word == -* || $only ]]; then
    COMPREPLY=($(compgen -W "$words" -- "$word"))
  else
    COMPREPLY=($(compgen -f -- "$word"))
  fi
}}
complete -o filenames -F _hood hood
"""
_ZSH = "autoload -U +X compinit && compinit && autoload -U +X bashcompinit && bashcompinit\n"


@dataclass(frozen=True, slots=True)
class Context:
    """A place on the command line (`policy check`) and what can follow there."""

    place: str
    words: tuple[str, ...]
    has_verbs: bool = False

    @property
    def takes_files(self) -> bool:
        return all(word.startswith("-") for word in self.words)


class Arguments(argparse.Namespace):
    shell: str


def build_parser() -> argparse.ArgumentParser:
    description = "Print the completion script for a shell."
    parser = Parser(prog="hood completion", description=description, epilog=_INSTALL)
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))
    return parser


def execute(arguments: list[str]) -> int:
    chosen = build_parser().parse_args(arguments, namespace=Arguments())
    scripts = {"bash": _bash_script, "zsh": lambda: _ZSH + _bash_script(), "fish": _fish_script}
    print(scripts[chosen.shell](), end="")
    return 0


def contexts() -> list[Context]:
    top = Context("", (*(command.name for command in COMMANDS), "--help", "--version"))
    below = [context for command in COMMANDS for context in _contexts(command.name, command.load().build_parser())]
    return [top, *below]


def _contexts(place: str, parser: argparse.ArgumentParser) -> Iterator[Context]:
    verbs: dict[str, argparse.ArgumentParser] = {}
    words: list[str] = []
    for action in parser._actions:
        choices = cast("Iterable[str] | None", action.choices)
        words += action.option_strings or list(choices or ())
        if isinstance(choices, dict):
            verbs = cast("dict[str, argparse.ArgumentParser]", choices)
    yield Context(place, tuple(words), has_verbs=bool(verbs))
    for name, verb in verbs.items():
        yield from _contexts(f"{place} {name}", verb)


def _bash_script() -> str:
    found = contexts()
    values = (f"    {option}) {_bash_values(option, words)}; return ;;" for option, words in _VALUES.items())
    places = (
        f"    {shlex.quote(c.place)}) words={shlex.quote(' '.join(c.words))}{'' if c.takes_files else ' only=1'} ;;"
        for c in found
    )
    nested = "|".join(context.place for context in found if context.has_verbs)
    return _BASH.format(nested=nested, values="\n".join(values), places="\n".join(places))


def _bash_values(option: str, words: str) -> str:
    files = ' $(compgen -f -- "$word")' if option in _TAKE_FILES else ""
    return f'COMPREPLY=($(compgen -W "{words}" -- "$word"){files})'


def _fish_script() -> str:
    lines: list[str] = []
    for context in contexts():
        if not context.place:
            condition = "__fish_use_subcommand"
        else:
            condition = "__fish_seen_subcommand_from " + context.place.rpartition(" ")[2]
        lines += [f"complete -c hood -n {shlex.quote(condition)} {_fish_word(word)}" for word in context.words]
    return "\n".join(lines) + "\n"


def _fish_word(word: str) -> str:
    if word.startswith("--"):
        kind = "-ra" if word in _TAKE_FILES else "-xa"
        values = f" {kind} {shlex.quote(_VALUES[word])}" if word in _VALUES else ""
        return f"-l {word[2:]}{values}"
    return f"-s {word[1:]}" if word.startswith("-") else f"-fa {shlex.quote(word)}"
