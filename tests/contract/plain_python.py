"""What plain `python3 main.py` does with a program, told in the words of a run's result."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from fumehood import RunResult

SCRIPT = "/run/main.py"
# What the sandbox's own environment says to an interpreter that starts in it.
_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONUNBUFFERED": "1"}
_LIBRARY = re.compile(r"from '/[^']*/lib/python3\.\d+/")  # where a module says that it lies; elsewhere in a container
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")
_SECONDS = 60


@dataclass(frozen=True)
class Behaviour:
    exit_code: int
    stdout: str
    stderr: str

    @classmethod
    def of(cls, result: RunResult) -> Behaviour:
        return cls(result.exit_code, _normalise(result.stdout), _normalise(result.stderr))


def run_plainly(
    folder: Path, source: str, *, stdin: bytes = b"", args: tuple[str, ...] = (), env: dict[str, str] | None = None
) -> Behaviour:
    script = folder / "main.py"
    script.write_bytes(source.encode())
    interpreter = getattr(sys, "_base_executable", sys.executable)
    done = subprocess.run(
        [interpreter, str(script), *args],
        input=stdin,
        capture_output=True,
        cwd=folder,
        env={**_ENVIRONMENT, **(env or {})},
        timeout=_SECONDS,
        preexec_fn=_heed_signals,
    )
    code = done.returncode if done.returncode >= 0 else 128 - done.returncode
    texts = [_normalise(data.decode("utf-8", "replace"), script) for data in (done.stdout, done.stderr)]
    return Behaviour(code, *texts)


def _heed_signals() -> None:
    """As a program in a sandbox does, also where the tests are a background job, which ignores some."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


def _normalise(text: str, script: Path | None = None) -> str:
    if script is not None:
        text = text.replace(str(script), SCRIPT)
    return _ADDRESS.sub("0xADDRESS", _LIBRARY.sub("from 'LIBRARY/", text))
