"""`hood gc`: removes what processes left behind that were killed before they could. The next run does it too."""

from __future__ import annotations

import argparse

from fumehood.backends.native.cgroups import remove_stale_everywhere
from fumehood.cli.arguments import Parser


def build_parser() -> argparse.ArgumentParser:
    return Parser(prog="hood gc", description="Remove the cgroups that killed processes left behind.")


def execute(arguments: list[str]) -> int:
    build_parser().parse_args(arguments)
    removed = remove_stale_everywhere()
    for folder in removed:
        print(f"removed {folder}")
    print(f"removed {len(removed)} cgroups" if removed else "nothing to remove")
    return 0
