"""`hood bench`: what a sandboxed run costs, side by side with plain python.

Machines are shared and noisy, so every figure is a ratio of two things measured in turns, never one after the other.
`runs` and `sessions` are measured here; `benchmarks/` of the repository measures other people's software as well, with
the same table.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from tempfile import TemporaryDirectory

import anyio

from fumehood.audit import location
from fumehood.cli.bench import keepers, runs, sessions
from fumehood.cli.bench.measurement import Row

Group = Callable[[int], AsyncIterator[Row]]

GROUPS: dict[str, Group] = {
    "runs": runs.measure,
    "cold": keepers.measure,
    "sessions": lambda rounds: sessions.measure(runs.plain_python(), rounds),
}
"""What can be measured by itself, in the order of the table; each takes the number of rounds."""


def build_parser(
    program: str = "hood bench",
    purpose: str = "Measure sandboxed runs against plain python.",
    groups: Mapping[str, Group] = GROUPS,
) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=program, description=purpose)
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    parser.add_argument("--rounds", type=int, default=60, metavar="N", help="how often each thing is timed (60)")
    parser.add_argument(
        "--only",
        action="append",
        choices=list(groups),
        metavar="GROUP",
        help=f"measure this and nothing else; may be repeated ({', '.join(groups)})",
    )
    return parser


def execute(arguments: list[str]) -> int:
    options = build_parser().parse_args(arguments)
    return print_table(GROUPS, options)


def print_table(groups: Mapping[str, Group], options: argparse.Namespace) -> int:
    rows: list[Row] = []

    async def collect() -> None:
        for name, group in groups.items():
            if options.only and name not in options.only:
                continue
            async for row in group(max(3, options.rounds)):
                rows.append(row)
                if not options.json:
                    print(_line(row), flush=True)

    if not options.json:
        print(f"{'what':44} {'it':>9} {'against':>9} {'ratio':>7}  budget")
    with _audit_log_of_its_own():
        anyio.run(collect)
    if options.json:
        json.dump([row.to_dict() for row in rows], sys.stdout, indent=2)
        print()
    return 0


@contextmanager
def _audit_log_of_its_own() -> Iterator[None]:
    """Runs are recorded, as any are, but not among the user's."""
    before = os.environ.get(location.VARIABLE)
    with TemporaryDirectory(prefix="hood-bench-") as folder:
        os.environ[location.VARIABLE] = folder
        try:
            yield
        finally:
            os.environ.pop(location.VARIABLE)
            if before is not None:
                os.environ[location.VARIABLE] = before


def _line(row: Row) -> str:
    if row.missing:
        return f"{row.name:44} {row.missing}"
    against = "" if row.against is None else f"{row.against:.1f}"
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}x"
    return f"{row.name:44} {row.value:7.1f}{row.unit:>2} {against:>9} {ratio:>7}  {row.budget}"
