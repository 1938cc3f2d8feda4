"""Asks the kernel: starts the probe program, which tries everything in children of its own, never in this process."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

import fumehood.guest
from fumehood.backends.native.host_facts import HostFacts
from fumehood.errors import StepFailedError
from fumehood.guest.contract.probe import Answer

_PATIENCE_SECONDS = 120.0
_BOOT = "import sys; sys.path.insert(0, {folder!r}); from guest import probe; probe.main()"


def probe(machine: HostFacts, entrances: Mapping[str, Path]) -> dict[str, Answer]:
    """One answer for each mechanism, and for each cgroup whose entrance is given."""
    folder = Path(fumehood.guest.__file__).parent.parent
    done = subprocess.run(
        [machine.interpreter.executable, "-I", "-S", "-c", _BOOT.format(folder=str(folder))],
        input=json.dumps({name: str(path) for name, path in entrances.items()}),
        capture_output=True,
        text=True,
        env={"LC_ALL": "C.UTF-8"},
        cwd="/",
        timeout=_PATIENCE_SECONDS,
    )
    if done.returncode != 0:
        raise StepFailedError("probing the kernel", done.stderr.strip() or f"exit code {done.returncode}", remedy="")
    return json.loads(done.stdout)
