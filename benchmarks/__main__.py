"""`python -m benchmarks`: everything that `hood bench` measures, and the comparisons that need other software."""

from __future__ import annotations

import sys

from benchmarks import (
    agents,
    audits,
    calls,
    clusters,
    consoles,
    containers,
    e2b,
    egress,
    forks,
    machines,
    packages,
    processes,
    remote,
    runs,
    runtimes,
    transfers,
)
from fumehood.cli.bench import GROUPS, Group, build_parser, print_table


def groups(many_records: int) -> dict[str, Group]:
    return {
        **GROUPS,
        "rivals": runs.measure,
        "audit": lambda rounds: audits.measure(rounds, many_records),
        "packages": packages.measure,
        "calls": calls.measure,
        "agents": agents.measure,
        "files": lambda _: transfers.measure(),
        "forks": lambda _: forks.measure(),
        "e2b": lambda _: e2b.measure(),
        "console": lambda _: consoles.measure(),
        "cluster": clusters.measure,
        "remote": remote.measure,
        "gateway": lambda _: egress.measure(),
        "runtime": runtimes.measure,
        "processes": processes.measure,
        "containers": containers.measure,
        "machines": machines.measure,
    }


def main() -> int:
    parser = build_parser("python -m benchmarks", "Measure sandboxed runs against other software.", groups(0))
    parser.add_argument(
        "--audit-records",
        type=int,
        default=0,
        metavar="N",
        help="also measure an audit log of N records (1000000: minutes)",
    )
    options = parser.parse_args()
    return print_table(groups(options.audit_records), options)


if __name__ == "__main__":
    sys.exit(main())
