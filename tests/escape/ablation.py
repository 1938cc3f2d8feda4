"""Shows that every attack is stopped by something: takes protections away, one by one, and sees which attacks succeed.

    .venv/bin/python tests/escape/ablation.py [--rootless] [--only NAME[,NAME]]... [--tests EXPRESSION] [--keep]

Works on a copy of the repository in a temporary folder. `--rootless` runs the attacks as a temporary ordinary user,
`--tests` only those that pytest's `-k` would choose. `--keep` writes what succeeded into SEEN.md: a row is replaced,
or, after a choice of tests, added to. An attack that succeeds with everything in place is listed apart: that is a hole.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import seen
from protections import AIMED_AT, COMBINATIONS, ONLY_TOGETHER, PROTECTIONS, Patch

ROOT = Path(__file__).resolve().parents[2]
STOPPED, SUCCEEDED, BROKEN = "stopped", "succeeded", "could not be carried out"
_RESULT = re.compile(r"^(PASSED|FAILED|ERROR|XFAIL|XPASS) (tests/escape/\S+?::.+?)(?: - (.*))?$", re.MULTILINE)
# An attack succeeds when it gets what it must not get. One that could not be carried out tells nothing.
_BOOTY = re.compile(r"(AssertionError: )?assert |Failed: DID NOT RAISE")
# These attackers want nothing but to go on, or to hold others up; the test that waits in vain is their success.
_LINGERERS = re.compile(r"::test_(time_ends|nothing_survives|a_child_that_is_given_to_the_supervisor)")
_IN_VAIN = "Failed: Timeout"


class Result(NamedTuple):
    verdict: str
    message: str


def main() -> int:
    arguments = parse_arguments()
    chosen = [(name,) for name in PROTECTIONS if name not in ONLY_TOGETHER] + COMBINATIONS
    if arguments.only:
        chosen = [tuple(names.split(",")) for names in arguments.only]
    suffix = seen.ROOTLESS if arguments.rootless else ""
    felled: dict[str, set[str]] = {}
    with copied_repository() as copy:
        whole = run_attacks(copy, arguments.rootless, arguments.tests)
        holes = sorted(test for test, result in whole.items() if result.verdict != STOPPED)
        print(f"{len(whole)} attacks; with everything in place {len(holes)} are not stopped", flush=True)
        for names in chosen:
            with weakened(copy, [patch for name in names for patch in PROTECTIONS[name]]):
                if not can_run(copy):
                    print(f"\nwithout {', '.join(names)} no program runs at all, which would look like success")
                    continue
                tests = arguments.tests or AIMED_AT.get(", ".join(names), "")
                results = run_attacks(copy, arguments.rootless, tests, without=holes)
            row = ", ".join(names) + suffix
            print_row(row, results)
            felled[row] = {function(test) for test, result in results.items() if result.verdict == SUCCEEDED}
            if arguments.keep:
                seen.keep(row, felled[row], add=bool(arguments.tests))
    print_list("succeed already (holes and known limits)", holes)
    print_list("never succeeded", sorted({function(test) for test in whole} - set().union(*felled.values())))
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rootless", action="store_true")
    parser.add_argument("--only", action="append", help="protections to take away together, instead of all in turn")
    parser.add_argument("--tests", default="", help="as for pytest -k")
    parser.add_argument("--keep", action="store_true", help="write the result into SEEN.md")
    return parser.parse_args()


@contextmanager
def copied_repository() -> Iterator[Path]:
    """Its pytest imports the package from the copy, though the virtual environment is the original's."""
    with tempfile.TemporaryDirectory(prefix="hood-ablation-", dir="/var/tmp") as folder:
        copy = Path(folder)
        copy.chmod(0o755)
        for name in ("src", "tests", "scripts", "docs"):
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        settings = (ROOT / "pyproject.toml").read_text()
        if "\npythonpath = [" not in settings:
            sys.exit(
                "pyproject.toml has no list `pythonpath` any more: the attacks would meet the original, not the copy"
            )
        (copy / "pyproject.toml").write_text(settings.replace("\npythonpath = [", '\npythonpath = ["src", '))
        (copy / ".venv").symlink_to(ROOT / ".venv")
        yield copy


@contextmanager
def weakened(copy: Path, patches: list[Patch]) -> Iterator[None]:
    """The protection is gone until the block ends."""
    originals: dict[Path, str] = {}
    try:
        for patch in dict.fromkeys(patches):
            path = copy / "src" / "fumehood" / patch.file
            text = path.read_text()
            originals.setdefault(path, text)
            if patch.old not in text:
                sys.exit(f"{patch.file} has no {patch.old!r} any more: bring protections.py up to date")
            path.write_text(text.replace(patch.old, patch.new))
        yield
    finally:
        for path, text in originals.items():
            path.write_text(text)


def run_attacks(copy: Path, rootless: bool, tests: str, without: Sequence[str] = ()) -> dict[str, Result]:
    options = ["tests/escape", "-vv", "-rA", "--tb=no", "--timeout=20", "-k", tests]
    options += ["--ignore=tests/escape/test_protections.py", *(f"--deselect={test}" for test in without)]
    command = [".venv/bin/python", "tests/rootless.py"] if rootless else ["sh", "scripts/test"]
    done = subprocess.run([*command, *options], cwd=copy, capture_output=True, text=True)
    found = _RESULT.findall(done.stdout)
    return {test: Result(judge(test, result, message), message) for result, test, message in found}


def can_run(copy: Path) -> bool:
    """Whether a harmless program still does what it should."""
    code = "import fumehood; assert fumehood.run('print(6 * 7)').stdout == '42\\n'"
    environment = {**os.environ, "PYTHONPATH": str(copy / "src")}
    return subprocess.run([copy / ".venv/bin/python", "-c", code], env=environment).returncode == 0


def judge(test: str, result: str, message: str) -> str:
    if result == "PASSED":
        return STOPPED
    has_won = _BOOTY.match(message) or (_LINGERERS.search(test) and message.startswith(_IN_VAIN))
    return SUCCEEDED if result in ("FAILED", "XFAIL") and has_won else BROKEN


def function(test: str) -> str:
    return test.partition("::")[2].partition("[")[0]


def print_row(row: str, results: Mapping[str, Result]) -> None:
    """How often each attack succeeded or broke, with what the first of them said."""
    counts = {verdict: sum(result.verdict == verdict for result in results.values()) for verdict in (SUCCEEDED, BROKEN)}
    print(f"\n{row}: {len(results)} attacks, " + ", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    for verdict in counts:
        said: dict[str, list[str]] = {}
        for test, result in results.items():
            if result.verdict == verdict:
                said.setdefault(function(test), []).append(result.message)
        for name, messages in said.items():
            print(f"    {len(messages):4} {name} {verdict}: {messages[0][:160]}", flush=True)


def print_list(title: str, tests: list[str]) -> None:
    print(f"\n{title}: {len(tests)}")
    for test in tests:
        print(f"         {test}")


if __name__ == "__main__":
    sys.exit(main())
