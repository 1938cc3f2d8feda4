"""Trials of the limit on processors, counted by whoever sees what the host gives."""

from __future__ import annotations

import time

from fumehood.backends.selection import select_backend
from fumehood.errors import UnenforceableError
from fumehood.proof.emulators import cpu_seconds, find_emulators
from fumehood.proof.laboratory import Laboratory, require_time
from fumehood.proof.program import GOT, Program
from fumehood.proof.trial import BrokenError, Trial, attack
from fumehood.proof.trials.limits import with_limits

_SECONDS = 1.0
_CPUS = 0.5
# CPU seconds for each second of the clock: quotas are given in slices, and a slice may be begun.
_OVER = 1.5
_LIMITS = {"cpus": _CPUS, "timeout": "30s"}


@attack("resources.cpus", "Keep more processors busy than the limit.")
async def take_processors(lab: Laboratory) -> str:
    measure = {"gvisor": _share_by_pauses, "microvm": _share_of_the_emulator}
    try:
        share = await measure.get(select_backend(lab.policy).name, _share_as_counted)(lab)
    except UnenforceableError:  # without a quota there are only whole processors
        return await _take_another_processor(lab)
    if share > _CPUS * _OVER:
        raise BrokenError(f"with {_CPUS} of a processor it had {share:.2f}")
    return f"with {_CPUS} of a processor, two processes had {share:.2f}"


async def _share_as_counted(lab: Laboratory) -> float:
    """By the host's kernel, which runs them."""
    result, program = await with_limits(lab, _LIMITS, _BURN, seconds=_SECONDS)
    program.tried(result)
    return result.cpu_ms / result.duration_ms


async def _share_by_pauses(lab: Laboratory) -> float:
    """gVisor counts a process that the host lets wait as one that runs; the program notices by steps of the clock."""
    result, program = await with_limits(lab, _LIMITS, _BURN, seconds=_SECONDS)
    return 2 * float(program.tried(result)["share"].removeprefix(GOT))


async def _share_of_the_emulator(lab: Laboratory) -> float:
    """The machine's kernel does not see when the host lets it wait. Copies that are made ahead have emulators too."""
    program = Program(_BURN, seconds=_SECONDS)
    async with lab.sandbox({"resources": _LIMITS}) as box:
        require_time(box)
        before, started = {process: cpu_seconds(process) for process in find_emulators()}, time.monotonic()
        program.tried(await box.run(program.source))
        taken = time.monotonic() - started
        used = [cpu_seconds(process) - had for process, had in before.items()]
    if not used or max(used) <= 0:
        raise BrokenError("no emulator of the machine was found at work")
    return max(used) / taken


_BURN = """
other = os.fork()
start = last = time.monotonic()
ran = 0.0
while last < start + seconds:
    now = time.monotonic()
    if now - last < 0.002:
        ran += now - last
    last = now
if other == 0:
    os._exit(0)
os.waitpid(other, 0)
attempt("share", lambda: ran / (last - start))
"""


async def _take_another_processor(lab: Laboratory) -> str:
    code = """
    def widen():
        os.sched_setaffinity(0, range(1024))
        return len(os.sched_getaffinity(0))

    attempt("own", lambda: len(os.sched_getaffinity(0)))
    attempt("more", widen)
    """
    result, program = await with_limits(lab, {"cpus": 1}, code)
    tried = program.tried(result)
    if tried["own"] != "got: 1" or (tried["more"] != "got: 1" and not tried["more"].startswith("refused")):
        raise BrokenError(f"with one processor: {tried}")
    return f"without a quota here, with one processor: it has one; taking more: {tried['more']}"


TRIALS: tuple[Trial, ...] = (take_processors,)
