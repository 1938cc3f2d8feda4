"""A smoke test: a real run in a real sandbox, the only proof that everything works together."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import anyio

from fumehood.errors import FumehoodError
from fumehood.sandbox.async_sandbox import AsyncSandbox

_PROGRAM = "print(6 * 7)"
_EXPECTED = "42\n"


@dataclass(frozen=True, slots=True)
class SmokeTest:
    """Its result, with the time of the first run (`cold_ms`) and of another one (`warm_ms`)."""

    works: bool
    detail: str = ""
    cold_ms: float = 0.0
    warm_ms: float = 0.0
    enforcement: Mapping[str, str] = field(default_factory=dict[str, str])


def run_smoke_test() -> SmokeTest:
    try:
        return anyio.run(_try)
    except (FumehoodError, OSError) as error:
        return SmokeTest(works=False, detail=str(error))


async def _try() -> SmokeTest:
    started = time.perf_counter()
    async with AsyncSandbox() as box:
        first = await box.run(_PROGRAM)
        cold_ms = (time.perf_counter() - started) * 1000
        second = await box.run(_PROGRAM)
        warm_ms = (time.perf_counter() - started) * 1000 - cold_ms
        works = first.stdout == second.stdout == _EXPECTED
        detail = "" if works else f"it printed {first.stdout!r} and then {second.stdout!r}; {first.stderr}"
        return SmokeTest(works, detail, cold_ms, warm_ms, box.enforcement)
