"""Parsers that speak like the rest of `hood`: one line, where to read on, exit code 2."""

from __future__ import annotations

import argparse
from typing import NoReturn

from fumehood.cli import exitcodes
from fumehood.cli.messages import say


class Parser(argparse.ArgumentParser):
    def __init__(self, *, prog: str, description: str, epilog: str = "", usage: str | None = None) -> None:
        super().__init__(
            prog=prog,
            usage=usage,
            description=description,
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        say(f"{message}; see `{self.prog} --help`")
        raise SystemExit(exitcodes.USAGE)


def split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Ours, and what comes after `--`, which is the program's whatever it looks like."""
    if "--" not in arguments:
        return arguments, []
    place = arguments.index("--")
    return arguments[:place], arguments[place + 1 :]
