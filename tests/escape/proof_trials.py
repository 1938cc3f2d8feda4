"""Carries out trials of a proof, all or those that are named: `python proof_trials.py POLICY [TRIAL]...`

Prints, as JSON, whether a harmless program runs at all, and the result of each trial. Imports the package that
PYTHONPATH names, which may lack a protection; `hood prove` itself always carries out all of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__)
NO_PROGRAM_RUNS = "no program runs at all"


def results(source: Path, policy: Path, names: list[str], variables: dict[str, str]) -> dict[str, str] | str:
    """By the package in `source`, in a process of its own; or why there are none."""
    with tempfile.TemporaryDirectory(prefix="hood-proof-trials-") as folder:
        environment = {**os.environ, **variables, "PYTHONPATH": str(source), "FUMEHOOD_AUDIT": f"{folder}/audit"}
        done = subprocess.run([sys.executable, HERE, policy, *names], env=environment, capture_output=True, text=True)
    try:
        told = json.loads(done.stdout)
    except ValueError:
        return f"{NO_PROGRAM_RUNS} ({done.stderr.strip()[-120:]})"
    return told["results"] if told["runs"] else NO_PROGRAM_RUNS


async def carry_out_here(policy: str, names: list[str]) -> dict[str, object]:
    from fumehood.policy import read_policy
    from fumehood.proof.carry_out import carry_out
    from fumehood.proof.laboratory import open_laboratory
    from fumehood.proof.trial import ALWAYS
    from fumehood.proof.trials import trials_of

    loaded = read_policy(policy)
    assert loaded is not None
    async with open_laboratory(loaded) as lab:
        if (await lab.run("print(6 * 7)")).stdout != "42\n":
            return {"runs": False, "results": {}}
        entries = lab.box.enforcement_report.entries
        partial = {entry.control: entry.mechanism for entry in entries if entry.partial}
        trials = trials_of([*(entry.control for entry in entries), *ALWAYS])
        chosen = [trial for trial in trials if not names or trial.name in names]
        return {"runs": True, "results": {t.name: (await carry_out(t, lab, partial)).result for t in chosen}}


if __name__ == "__main__":
    import anyio

    # What the package prints, with a piece of it taken away, must not get into the answer.
    answer, sys.stdout = sys.stdout, sys.stderr
    print(json.dumps(anyio.run(carry_out_here, sys.argv[1], sys.argv[2:])), file=answer)
