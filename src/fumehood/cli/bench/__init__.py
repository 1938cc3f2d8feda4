"""`hood bench`: what a sandboxed run costs, side by side with what it is compared to, in one go.

Machines are shared and noisy, so every figure is a ratio of two things measured in turns, never one after the other.
`measures` and the modules that it calls know what is measured, `rivals` what it is measured against, `timing` how; this
module prints.
"""

from __future__ import annotations

import argparse
import json
import sys

import anyio

from fumehood.cli.bench.measures import groups
from fumehood.cli.bench.rows import Row


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="hood bench", description="Measure sandboxed runs against plain python.")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    parser.add_argument("--rounds", type=int, default=60, metavar="N", help="how often each thing is timed (60)")
    parser.add_argument(
        "--only",
        action="append",
        choices=list(groups(0)),
        metavar="GROUP",
        help=f"measure this and nothing else; may be repeated ({', '.join(groups(0))})",
    )
    parser.add_argument(
        "--audit-records",
        type=int,
        default=0,
        metavar="N",
        help="also measure an audit log of N records (1000000: minutes)",
    )
    return parser


def execute(arguments: list[str]) -> int:
    options = build_parser().parse_args(arguments)
    rows: list[Row] = []
    chosen = {name: group for name, group in groups(options.audit_records).items() if name in (options.only or [name])}

    async def collect() -> None:
        for group in chosen.values():
            async for row in group(max(3, options.rounds)):
                rows.append(row)
                if not options.json:
                    print(_line(row), flush=True)

    if not options.json:
        print(f"{'what':44} {'it':>9} {'against':>9} {'ratio':>7}  budget")
    anyio.run(collect)
    if options.json:
        json.dump([row.to_dict() for row in rows], sys.stdout, indent=2)
        print()
    return 0


def _line(row: Row) -> str:
    if row.missing:
        return f"{row.name:44} {row.missing}"
    against = "" if row.against is None else f"{row.against:.1f}"
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}x"
    return f"{row.name:44} {row.value:7.1f}{row.unit:>2} {against:>9} {ratio:>7}  {row.budget}"
