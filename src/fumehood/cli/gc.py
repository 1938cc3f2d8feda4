"""`hood gc`: removes what processes left behind that were killed before they could. The next run does it too.

And what is kept on an engine for containers to come, and no container uses.
"""

from __future__ import annotations

import argparse

from fumehood.backends.docker.cleaning import remove_ownerless
from fumehood.backends.native.cgroups import remove_stale_everywhere
from fumehood.cli.arguments import Parser


def build_parser() -> argparse.ArgumentParser:
    return Parser(
        prog="hood gc",
        description="Remove the cgroups and containers that killed processes left behind, and volumes of ours that no "
        "container uses.",
    )


def execute(arguments: list[str]) -> int:
    build_parser().parse_args(arguments)
    removed = remove_stale_everywhere()
    containers, volumes = remove_ownerless()
    for name in (*removed, *containers, *volumes):
        print(f"removed {name}")
    kinds = ((removed, "cgroups"), (containers, "containers"), (volumes, "volumes"))
    counts = [f"{len(found)} {kind}" for found, kind in kinds if found]
    print(f"removed {' and '.join(counts)}" if counts else "nothing to remove")
    return 0
