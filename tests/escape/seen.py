"""SEEN.md: which attacks succeeded without which protection. `ablation.py` writes its table, people write the rest.

NOTICED.md is the same for the trials of `hood prove`, by `proof_ablation.py`.
"""

from __future__ import annotations

import re
from collections.abc import Set
from pathlib import Path

DOCUMENT = Path(__file__).with_name("SEEN.md")
NOTICED = Path(__file__).with_name("NOTICED.md")
_ROW = re.compile(r"^\| `(.+)`( \(rootless\))? \| (.*) \|\n", re.MULTILINE)
_NOTICED_ROW = re.compile(r"^\| `(.+?)` \| (.+) \|$", re.MULTILINE)
_NAME = re.compile(r"`(test_\w+)`")
_HEAD = "|---|---|\n"
ROOTLESS = " (rootless)"


def rows() -> dict[str, set[str]]:
    """Attacks by what was taken away."""
    found = _ROW.findall(DOCUMENT.read_text())
    return {protections + suffix: set(_NAME.findall(tests)) for protections, suffix, tests in found}


def unseen() -> set[str]:
    """The attacks that are listed below the table, with the reason."""
    return set(re.findall(r"^- `(test_\w+)`", DOCUMENT.read_text(), re.MULTILINE))


def keep(row: str, tests: Set[str], *, add: bool) -> None:
    table = rows()
    table[row] = table.get(row, set()) | tests if add else set(tests)
    before, _, after = _ROW.sub("", DOCUMENT.read_text()).partition(_HEAD)
    text = "".join(_line(row, table[row]) for row in sorted(table) if table[row])
    DOCUMENT.write_text(before + _HEAD + text + after)


def _line(row: str, tests: Set[str]) -> str:
    protections = row.removesuffix(ROOTLESS)
    suffix = row.removeprefix(protections)
    return f"| `{protections}`{suffix} | {', '.join(f'`{test}`' for test in sorted(tests))} |\n"


def noticed() -> dict[str, str]:
    """What a proof tells, by what was taken away."""
    return dict(_NOTICED_ROW.findall(NOTICED.read_text()))


def noticing_trials(row: str) -> dict[str, list[str]]:
    """The trials that the table has for it, by policy."""
    policy, colon, trials = noticed().get(row, "").partition(": ")
    return {policy: trials.split(", ")} if colon else {}


def keep_noticed(row: str, told: str) -> None:
    rows = noticed() | {row: told}
    table = "".join(f"| `{name}` | {rows[name]} |\n" for name in sorted(rows))
    NOTICED.write_text(NOTICED.read_text().partition(_HEAD)[0] + _HEAD + table)
