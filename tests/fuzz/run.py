"""Coverage-guided fuzzing of the parsers: `make fuzz [SECONDS=60] [TARGET=name]`.

Each target has its time, in a process of its own, under atheris (libFuzzer for Python). What is new is kept in
tests/fuzz/corpus, so that the next time goes on from there; an input that fails is kept in tests/fuzz/findings, and
`make test` tries both again, each input once.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
MOST_BYTES = 4096
SLOW_SECONDS = 10
MOST_KEPT = 60  # of a target: the corpus is minimised to what adds coverage
_STATUS = re.compile(r"#(\d+)\s.*?cov: (\d+) ft: (\d+) corp: (\d+)")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=60, help="for each target (60)")
    parser.add_argument("targets", nargs="*", help="names from targets.py (all)")
    arguments = parser.parse_args()
    if arguments.seconds == 0:  # a process for one target, started below
        return fuzz_here(arguments.targets[0])
    from targets import TARGETS

    if unknown := set(arguments.targets) - set(TARGETS):
        parser.error(f"there is no target {', '.join(unknown)}: {', '.join(TARGETS)}")
    print(f"{'target':16s} {'executions':>12s} {'coverage':>9s} {'corpus':>7s}")
    return max(fuzz(name, arguments.seconds) for name in arguments.targets or TARGETS)


def fuzz(name: str, seconds: int) -> int:
    corpus, findings = FOLDER / "corpus" / name, FOLDER / "findings"
    seed(name, corpus)
    findings.mkdir(exist_ok=True)
    options = [f"-max_total_time={seconds}", f"-max_len={MOST_BYTES}", f"-timeout={SLOW_SECONDS}", "-rss_limit_mb=2048"]
    command = [sys.executable, __file__, "--seconds", "0", name, "--", str(corpus)]
    command += [*options, "-print_final_stats=1", f"-artifact_prefix={findings}/{name}-"]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    seen = _STATUS.findall(done.stderr)
    executions, coverage, _, kept = seen[-1] if seen else ("0", "0", "0", "0")
    print(f"{name:16s} {int(executions):12,} {coverage:>9s} {kept:>7s}", flush=True)
    if done.returncode:
        print(f"a finding, kept in {findings}:\n{done.stderr[-3000:]}")
    keep_the_smallest(corpus)
    return 1 if done.returncode else 0


def seed(name: str, corpus: Path) -> None:
    from targets import TARGETS

    corpus.mkdir(parents=True, exist_ok=True)
    for number, content in enumerate(TARGETS[name].seeds):
        (corpus / f"seed-{number}").write_bytes(content)


def keep_the_smallest(corpus: Path) -> None:
    """What libFuzzer adds is thousands of inputs; seeds and the smallest stay."""
    found = sorted(
        (path for path in corpus.iterdir() if not path.name.startswith("seed-")), key=lambda p: p.stat().st_size
    )
    for path in found[MOST_KEPT:]:
        path.unlink()


def fuzz_here(name: str) -> int:
    import atheris

    with atheris.instrument_imports(include=["fumehood"]):
        from targets import TARGETS

    atheris.Setup([sys.argv[0], *sys.argv[sys.argv.index("--") + 1 :]], TARGETS[name].run)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
