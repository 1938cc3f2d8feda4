"""Shows what `hood prove` notices: takes protections away, one by one, and sees which trials then break.

    .venv/bin/python tests/escape/proof_ablation.py [--only NAME[,NAME]]... [--keep]

`--keep` writes the table NOTICED.md beside this file: a row is replaced, the others stay.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import seen
from ablation import can_run, copied_repository, weakened
from protections import ONLY_TOGETHER, PROTECTIONS

RICH = """
name: everything
filesystem:
  mounts: [{source: mounted, target: /data}]
  outputs: ["out/**"]
network:
  allow: [{host: api.example.com, ports: [443], methods: [GET]}]
  publish: [8000]
secrets: [{name: EXAMPLE, from_env: HOOD_PROVE_TEST_SECRET, inject: {host: api.example.com}}]
commands: {allow: [ls, echo *]}
resources: {cpu_time: 20s}
"""
PLAIN = "name: plain\n"
POLICIES = {"plain": PLAIN, "rich": RICH}
NOT_NOTICED = "not noticed"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", help="protections to take away together, instead of all in turn")
    parser.add_argument("--keep", action="store_true", help="write the result into NOTICED.md")
    arguments = parser.parse_args()
    chosen = [tuple(names.split(",")) for names in arguments.only or ()]
    chosen = chosen or [(name,) for name in PROTECTIONS if name not in ONLY_TOGETHER]
    with copied_repository() as copy:
        for names in chosen:
            with weakened(copy, [patch for name in names for patch in PROTECTIONS[name]]):
                noticed = proofs(copy) if can_run(copy) else "no program runs at all"
            print(f"{', '.join(names)}: {noticed}", flush=True)
            if arguments.keep:
                seen.keep_noticed(", ".join(names), noticed)
    return 0


def proofs(copy: Path) -> str:
    """The trials that break in a proof of the plain policy, or else in one of the rich policy."""
    for policy, text in POLICIES.items():
        if broken := broken_trials(copy, text):
            return f"{policy}: {', '.join(broken)}"
    return NOT_NOTICED


def broken_trials(copy: Path, policy: str) -> list[str]:
    with tempfile.TemporaryDirectory(prefix="hood-proof-ablation-") as name:
        folder = Path(name)
        (folder / "mounted").mkdir()
        (folder / "policy.yaml").write_text(policy)
        command = [copy / ".venv/bin/python", "-m", "fumehood", "prove", "--policy", folder / "policy.yaml"]
        environment = {
            **os.environ,
            "PYTHONPATH": str(copy / "src"),
            "HOOD_PROVE_TEST_SECRET": "a-value-of-the-test-0123456789",
            "FUMEHOOD_AUDIT": str(folder / "audit"),
        }
        done = subprocess.run([*command, "--out", folder, "--json"], env=environment, capture_output=True, text=True)
        reports = list(folder.glob("proof-*.json"))
        if not reports:
            return [f"no report ({done.stderr.strip()[-120:]})"]
        observations = json.loads(reports[0].read_text())["observations"]
        return sorted({one["name"] for one in observations if one["result"] == "broken"})


if __name__ == "__main__":
    sys.exit(main())
