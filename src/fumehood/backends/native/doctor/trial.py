"""A real run in a real sandbox: the only proof that everything works together."""

from __future__ import annotations

import time

import anyio

from fumehood.backends.interface import BackendSandbox, RunRequest
from fumehood.backends.native.backend import NativeBackend
from fumehood.backends.native.doctor.diagnosis import TrialRun
from fumehood.errors import FumehoodError
from fumehood.policy import Policy

PROGRAM = b"print(6 * 7)"
_EXPECTED = b"42\n"
_TIMEOUT_SECONDS = 10.0


def run_trial() -> TrialRun:
    try:
        return anyio.run(_trial)
    except FumehoodError as error:
        return TrialRun(works=False, detail=str(error), cold_ms=0.0, warm_ms=0.0, enforcement={})


async def _trial() -> TrialRun:
    backend = NativeBackend()
    try:
        started = time.perf_counter()
        async with backend.open(Policy()) as sandbox:
            first = await _run(sandbox)
            cold_ms = (time.perf_counter() - started) * 1000
            again = time.perf_counter()
            second = await _run(sandbox)
            warm_ms = (time.perf_counter() - again) * 1000
            works = first == second == _EXPECTED
            detail = "" if works else f"it printed {first!r} and then {second!r}"
            return TrialRun(works, detail, cold_ms, warm_ms, sandbox.report.mechanisms())
    finally:
        backend.close()


async def _run(sandbox: BackendSandbox) -> bytes:
    request = RunRequest(
        language="python",
        arguments=(),
        source=PROGRAM,
        script_name="main.py",
        environment={},
        cwd="",
        timeout_seconds=_TIMEOUT_SECONDS,
        stdin=None,
    )
    async with sandbox.start(request) as execution:
        data = b"".join([output.data async for output in execution.output()])
        execution.outcome()
        return data
