"""Shows that every attack is stopped by something: takes protections away, one by one, and sees which attacks succeed.

    .venv/bin/python tests/escape/ablation.py [--rootless] [--only NAME[,NAME]]... [--report FILE]

Works on a copy of the repository in a temporary folder. `--rootless` runs the attacks as a temporary ordinary user.
An attack that succeeds with everything in place is listed apart: that is a hole.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from protections import COMBINATIONS, ONLY_TOGETHER, PROTECTIONS, Patch

ROOT = Path(__file__).resolve().parents[2]
STOPPED, SUCCEEDED, BROKEN = "stopped", "succeeded", "could not be carried out"
_RESULT = re.compile(r"^(PASSED|FAILED|ERROR|XFAIL|XPASS) (tests/escape/\S+?::.+?)(?: - (.*))?$", re.MULTILINE)
# An attack succeeds when it gets what it must not get. One that could not be carried out tells nothing.
_BOOTY = re.compile(r"(AssertionError: )?assert |Failed: DID NOT RAISE")
# These attackers want nothing but to go on; the test that waits for their end in vain is their success.
_LINGERERS = re.compile(r"::test_(time_ends|nothing_survives)")
_IN_VAIN = "Failed: Timeout"


def main() -> int:
    arguments = parse_arguments()
    chosen = [(name,) for name in PROTECTIONS if name not in ONLY_TOGETHER] + COMBINATIONS
    if arguments.only:
        chosen = [tuple(names.split(",")) for names in arguments.only]
    with copied_repository() as copy:
        whole = run_attacks(copy, rootless=arguments.rootless)
        holes = sorted(test for test, result in whole.items() if result != STOPPED)
        print(f"{len(whole)} attacks; with everything in place {len(holes)} are not stopped", flush=True)
        felled: dict[str, list[str]] = {}
        for names in chosen:
            with weakened(copy, [patch for name in names for patch in PROTECTIONS[name]]):
                results = run_attacks(copy, rootless=arguments.rootless, without=holes)
            felled[", ".join(names)] = sorted(test for test, result in results.items() if result == SUCCEEDED)
            print_row(", ".join(names), felled[", ".join(names)], len(whole) - len(holes), results)
    never = sorted(set(whole) - set(holes) - {test for tests in felled.values() for test in tests})
    print_list("succeed already (holes and known limits)", holes)
    print_list("never succeeded", never)
    if arguments.report:
        report = {"holes": holes, "felled": felled, "never": never}
        arguments.report.write_text(json.dumps(report, indent=1))
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rootless", action="store_true")
    parser.add_argument("--only", action="append", help="protections to take away together, instead of all in turn")
    parser.add_argument("--report", type=Path)
    return parser.parse_args()


@contextmanager
def copied_repository() -> Iterator[Path]:
    """Its pytest imports the package from the copy, though the virtual environment is the original's."""
    with tempfile.TemporaryDirectory(prefix="hood-ablation-", dir="/var/tmp") as folder:
        copy = Path(folder)
        copy.chmod(0o755)
        for name in ("src", "tests", "scripts"):
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        settings = (ROOT / "pyproject.toml").read_text()
        (copy / "pyproject.toml").write_text(
            settings.replace('pythonpath = ["tests"]', 'pythonpath = ["src", "tests"]')
        )
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


def run_attacks(copy: Path, *, rootless: bool, without: Sequence[str] = ()) -> dict[str, str]:
    options = ["tests/escape", "-vv", "-rA", "--tb=no", "--timeout=20", "-p", "no:cacheprovider"]
    options += ["--ignore=tests/escape/test_protections.py", *(f"--deselect={test}" for test in without)]
    command = [".venv/bin/python", "tests/rootless.py"] if rootless else ["sh", "scripts/test"]
    done = subprocess.run([*command, *options], cwd=copy, capture_output=True, text=True)
    return {test: judge(test, result, message) for result, test, message in _RESULT.findall(done.stdout)}


def judge(test: str, result: str, message: str) -> str:
    if result == "PASSED":
        return STOPPED
    has_won = _BOOTY.match(message) or (_LINGERERS.search(test) and message.startswith(_IN_VAIN))
    return SUCCEEDED if result in ("FAILED", "XFAIL") and has_won else BROKEN


def print_row(protection: str, tests: list[str], count: int, results: Mapping[str, str]) -> None:
    broken = count - len(tests) - sum(result == STOPPED for result in results.values())
    print(f"\n{protection}: {len(tests)} succeed" + (f", {broken} could not be carried out" if broken else ""))
    for name, times in Counter(test.partition("::")[2].partition("[")[0] for test in tests).items():
        print(f"    {times:4} {name}", flush=True)


def print_list(title: str, tests: list[str]) -> None:
    print(f"\n{title}: {len(tests)}")
    for test in tests:
        print(f"         {test}")


if __name__ == "__main__":
    sys.exit(main())
