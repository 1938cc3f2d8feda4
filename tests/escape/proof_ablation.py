"""Shows what `hood prove` notices: takes protections away, one by one, and sees which trials then break.

    .venv/bin/python tests/escape/proof_ablation.py [--only NAME[,NAME]]... [--keep] [--whole]

`--keep` writes the table NOTICED.md beside this file: a row is replaced, the others stay. Trials that a row names are
tried first, and all of them only if none of those breaks; `--whole` tries all of them at once.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import seen
from ablation import copied_repository, weakened
from proof_policies import POLICIES, VARIABLES, write_policy
from proof_trials import results
from protections import ONLY_TOGETHER, PROTECTIONS

NOT_NOTICED = "not noticed"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", help="protections to take away together, instead of all in turn")
    parser.add_argument("--keep", action="store_true", help="write the result into NOTICED.md")
    parser.add_argument("--whole", action="store_true", help="try all trials, whatever NOTICED.md says")
    arguments = parser.parse_args()
    chosen = [tuple(names.split(",")) for names in arguments.only or ()]
    chosen = chosen or [(name,) for name in PROTECTIONS if name not in ONLY_TOGETHER]
    with copied_repository() as copy, tempfile.TemporaryDirectory(prefix="hood-proof-ablation-") as folder:
        policies = {name: write_policy(name, Path(folder)) for name in POLICIES}
        for names in chosen:
            row = ", ".join(names)
            known = {} if arguments.whole else seen.noticing_trials(row)
            with weakened(copy, [patch for name in names for patch in PROTECTIONS[name]]):
                noticed = notice(copy, policies, known)
            print(f"{row}: {noticed}", flush=True)
            if arguments.keep:
                seen.keep_noticed(row, noticed)
    return 0


def notice(copy: Path, policies: dict[str, Path], known: dict[str, list[str]]) -> str:
    """The trials that break in a proof of the plain policy, or else in one of the rich policy."""
    attempts = [*known.items(), *((name, list[str]()) for name in policies)]
    for name, trials in attempts:
        found = results(copy / "src", policies[name], trials, VARIABLES)
        if isinstance(found, str):
            return found
        if broken := sorted(trial for trial, result in found.items() if result == "broken"):
            return f"{name}: {', '.join(broken)}"
    return NOT_NOTICED


if __name__ == "__main__":
    sys.exit(main())
