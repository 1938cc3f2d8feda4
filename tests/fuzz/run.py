"""Coverage-guided fuzzing of the parsers: `make fuzz [SECONDS=60] [TARGET=name]`.

Each target has its time, in a process of its own, under atheris (libFuzzer for Python). The processes are forks of one
that has imported and instrumented the package, which takes longer than a short run. What is new is kept in
tests/fuzz/corpus, so that the next time goes on from there; an input that fails is kept in tests/fuzz/findings, and
`make test` tries both again, each input once.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import atheris

if TYPE_CHECKING:
    from fuzz.targets import Target

FOLDER = Path(__file__).parent
sys.path[0] = str(FOLDER.parent)  # so that targets are imported here as in the tests
MOST_BYTES = 4096
SLOW_SECONDS = 10
MOST_KEPT = 60  # of a target: the corpus is minimised to what adds coverage
_STATUS = re.compile(r"#(\d+)\s.*?cov: (\d+) ft: (\d+) corp: (\d+)")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=60, help="for each target (60)")
    parser.add_argument("targets", nargs="*", help="names from targets.py (all)")
    arguments = parser.parse_args()
    targets = instrumented_targets()
    if unknown := set(arguments.targets) - set(targets):
        parser.error(f"there is no target {', '.join(unknown)}: {', '.join(targets)}")
    print(f"{'target':16s} {'executions':>12s} {'coverage':>9s} {'corpus':>7s}", flush=True)
    return max(fuzz(name, targets[name], arguments.seconds) for name in arguments.targets or targets)


def instrumented_targets() -> Mapping[str, Target]:
    with atheris.instrument_imports(include=["fumehood"]):
        from fuzz.targets import TARGETS
    return TARGETS


def fuzz(name: str, target: Target, seconds: int) -> int:
    corpus, findings = FOLDER / "corpus" / name, FOLDER / "findings"
    seed(target, corpus)
    findings.mkdir(exist_ok=True)
    options = [f"-max_total_time={seconds}", f"-max_len={MOST_BYTES}", f"-timeout={SLOW_SECONDS}", "-rss_limit_mb=2048"]
    options += ["-print_final_stats=1", f"-artifact_prefix={findings}/{name}-"]
    code, log = fuzz_in_a_fork(target, [str(corpus), *options])
    seen = _STATUS.findall(log)
    executions, coverage, _, kept = seen[-1] if seen else ("0", "0", "0", "0")
    print(f"{name:16s} {int(executions):12,} {coverage:>9s} {kept:>7s}", flush=True)
    if code:
        print(f"a finding, kept in {findings}:\n{log[-3000:]}")
    keep_the_smallest(corpus)
    return 1 if code else 0


def fuzz_in_a_fork(target: Target, arguments: list[str]) -> tuple[int, str]:
    """How it ended, and what libFuzzer wrote."""
    with tempfile.TemporaryFile() as log:
        child = os.fork()
        if child == 0:
            os.dup2(log.fileno(), 2)
            atheris.Setup([sys.argv[0], *arguments], target.run)
            atheris.Fuzz()  # ends the process
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        log.seek(0)
        return code, log.read().decode(errors="replace")


def seed(target: Target, corpus: Path) -> None:
    corpus.mkdir(parents=True, exist_ok=True)
    for number, content in enumerate(target.seeds):
        (corpus / f"seed-{number}").write_bytes(content)


def keep_the_smallest(corpus: Path) -> None:
    """What libFuzzer adds is thousands of inputs; seeds and the smallest stay."""
    found = sorted(
        (path for path in corpus.iterdir() if not path.name.startswith("seed-")), key=lambda p: p.stat().st_size
    )
    for path in found[MOST_KEPT:]:
        path.unlink()


if __name__ == "__main__":
    sys.exit(main())
