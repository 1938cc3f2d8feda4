"""`hood gc`: removes what processes left behind that were killed before they could. The next run does it too.

And what is kept on an engine for containers to come, and no container uses; snapshots that nothing needs, and named
sandboxes that were not used for long.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from fumehood.backends.docker.gc import remove_ownerless
from fumehood.backends.native.cgroups import remove_stale_everywhere
from fumehood.cli.arguments import Parser
from fumehood.cli.output import say
from fumehood.images.build_dir import remove_abandoned
from fumehood.sandbox.named import NamedSandboxes


def build_parser() -> argparse.ArgumentParser:
    return Parser(
        prog="hood gc",
        description="Remove what killed processes left behind, and what is no longer used.",
    )


def execute(arguments: list[str]) -> int:
    build_parser().parse_args(arguments)
    builds = remove_abandoned()
    containers, volumes = remove_ownerless()
    snapshots = NamedSandboxes().collect()
    found: dict[str, Sequence[object]] = {
        "cgroups": remove_stale_everywhere(),
        "containers": containers,
        "volumes": volumes,
        "builds": builds,
        "sandboxes": [record.name for record in snapshots.sandboxes],
        "snapshots": [record.key for record in snapshots.snapshots],
    }
    for names in found.values():
        for name in names:
            print(f"removed {name}")
    counts = [f"{len(names)} {kind}" for kind, names in found.items() if names]
    counts += [f"{snapshots.files} unused file{'s' * (snapshots.files != 1)} of snapshots"] if snapshots.files else []
    print(f"removed {' and '.join(counts)}" if counts else "nothing to remove")
    if snapshots.problem:
        say(f"contents of snapshots are kept, needed or not: {snapshots.problem}")
    return 0
