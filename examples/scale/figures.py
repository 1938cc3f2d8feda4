"""What one host costs, read from the table that `make bench` fills (docs/performance.md)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

TABLE = Path(__file__).parents[2] / "docs" / "performance.md"
BENCH_CORES = 2  # of the machine that the table is from
UNITS = {"ms": 1e-3, "s": 1.0, "MiB": 1.0, "": 1.0}


@dataclass(frozen=True)
class Figures:
    """Seconds and MiB of one host."""

    run_cpu_seconds: float  # ours, for one fresh run; the program's own comes on top
    open_seconds: float  # a session in a cell that is warm
    cold_seconds: float  # what the first run of a policy takes more
    session_mib: float
    cell_mib: float


def read_figures(table: Path = TABLE) -> Figures:
    rows = _first_cells(table.read_text(encoding="utf-8"))
    fresh = _number(rows, "fresh run of `print(1)`")
    return Figures(
        run_cpu_seconds=BENCH_CORES / _number(rows, "runs per second on 2 cores / `python -I -S`"),
        open_seconds=_number(rows, "start and end a session"),
        cold_seconds=_number(rows, "first run of a new policy") - fresh,
        session_mib=_number(rows, "private memory of each of 200 idle sessions"),
        cell_mib=_number(rows, "private memory of an idle cell"),
    )


def _first_cells(text: str) -> dict[str, str]:
    """What is measured, and the figure of Fumehood."""
    lines = (line.strip().strip("|").split("|") for line in text.splitlines() if line.startswith("|"))
    return {cells[0].strip(): cells[1].strip() for cells in lines if len(cells) > 1}


def _number(rows: dict[str, str], beginning: str) -> float:
    found = [value for name, value in rows.items() if name.startswith(beginning)]
    match = re.fullmatch(r"([\d.]+) ?(\w*)", found[0]) if len(found) == 1 else None
    if match is None or match[2] not in UNITS:
        raise SystemExit(f"{TABLE.name} has not exactly one row with a figure that begins with {beginning!r}")
    return float(match[1]) * UNITS[match[2]]
