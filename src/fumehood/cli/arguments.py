"""Parsers that speak like the rest of `hood`: one line, the nearest valid word, where to read on, exit code 2."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn, TypeAlias

from fumehood.cli import exitcodes
from fumehood.cli.output import COLUMNS, say


class _Once(argparse.Action):
    """Stores a value. Given twice, the last one would win without a word, so it is an error instead."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        given: set[str] = vars(namespace).setdefault("_given", set())
        if option is not None and self.dest in given:
            raise argparse.ArgumentError(None, f"{option} is given twice; give it once")
        given.add(self.dest)
        setattr(namespace, self.dest, values)


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """As wide as argparse's own, which imports shutil for that whenever an option is added."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_columns() - 2)


def _columns() -> int:
    wanted = os.environ.get("COLUMNS", "")
    if wanted.isdecimal() and int(wanted) > 0:
        return int(wanted)
    try:
        return os.get_terminal_size(1).columns or COLUMNS
    except OSError:
        return COLUMNS


class Parser(argparse.ArgumentParser):
    def __init__(self, *, prog: str, description: str, epilog: str = "", usage: str | None = None) -> None:
        super().__init__(
            prog=prog,
            usage=usage,
            description=description,
            epilog=epilog,
            formatter_class=_Formatter,
            allow_abbrev=False,
        )
        for name in (None, "store"):
            self.register("action", name, _Once)

    unknown_option_advice = ""
    elsewhere: Mapping[str, str] = {}
    """Options of other programs that people type -> what does the same here."""

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> tuple[Any, list[str]]:  # pyright: ignore[reportIncompatibleMethodOverride]  # its overloads say the same of one parameter
        """Words that have no place are returned to the caller; an unknown option is an error."""
        chosen, rest = super().parse_known_args(args, namespace)
        unknown = next((word for word in rest if word.startswith("-") and word != "-"), None)
        if unknown is not None:
            name = unknown.partition("=")[0]
            same = f" (here it is {self.elsewhere[name]})" if name in self.elsewhere else ""
            advice = same or nearest(name, self._option_string_actions) or self.unknown_option_advice
            self.error(f"unknown option {name}{advice}")
        return chosen, rest

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            known = [str(choice) for choice in action.choices]
            advice = nearest(str(value), known) or f"; choose from {', '.join(known)}"
            raise argparse.ArgumentError(action, f"unknown {value!r}{advice}")

    def error(self, message: str) -> NoReturn:
        choices = [action.choices for action in self._actions if action.choices and not action.option_strings]
        if message.startswith("the following arguments are required") and choices:
            message = f"{message}, one of {', '.join(map(str, choices[0]))}"
        say(f"{message}; see `{self.prog} --help`")
        raise SystemExit(exitcodes.USAGE)


def nearest(name: str, known: Iterable[str]) -> str:
    """` (did you mean 'x'?)`, or nothing."""
    from difflib import get_close_matches

    # Without the dashes, which all options have in common.
    words = {word.lstrip("-"): word for word in known}
    found = get_close_matches(name.lstrip("-"), words, n=1)
    return f" (did you mean {words[found[0]]!r}?)" if found else ""


# argparse has no public name for what `add_subparsers` returns, and it takes no parameters when the program runs.
Verbs: TypeAlias = "argparse._SubParsersAction[Parser]"  # pyright: ignore[reportPrivateUsage]


def split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Ours, and what comes after `--`, which is the program's whatever it looks like."""
    if "--" not in arguments:
        return arguments, []
    place = arguments.index("--")
    return arguments[:place], arguments[place + 1 :]
