"""Trials of what runs leave to each other, and of their end."""

from __future__ import annotations

import asyncio
import os
import secrets
from contextlib import AsyncExitStack

import anyio

from fumehood.proof.laboratory import Laboratory, attempts, require_native
from fumehood.proof.program import SEARCH_MEMORY, require_success, turned_around
from fumehood.proof.trial import BrokenError, DoesNotApplyError, NotTestedError, Trial, attack, use
from fumehood.results import Cause

_SHARED = ("docker", "gvisor", "microvm")
# Beats into the workspace, which runs of a sandbox share, from processes that try to stay.
_DAEMONS = """
import os, signal, sys, time
for n in range(1, 32):
    if n not in (9, 17, 19):
        signal.signal(n, signal.SIG_IGN)
for number in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for _ in range(10_000):
                with open(f"{mark}-{number}", "a") as file:
                    file.write("x")
                time.sleep(0.01)
        os._exit(0)
while not all(os.path.exists(f"{mark}-{number}") for number in range(3)):
    time.sleep(0.01)
print("they live", flush=True)
"""
_SIZES = """
import time
def sizes():
    return [os.path.getsize(f"{mark}-{number}") for number in range(3)]
before = sizes()
time.sleep(0.3)
attempt("beats", lambda: (before, sizes()))
"""


@attack("end", "Leave processes behind, in sessions of their own and with signals ignored, at an ordinary end.")
async def survive_the_end(lab: Laboratory) -> str:
    result = await lab.run(f"mark = {lab.mark + '-a'!r}\n{_DAEMONS}")
    if "they live" not in result.stdout:
        raise BrokenError(f"the program did not get to its end: {result.detail or result.stderr[-200:]}")
    return await _count_beats(lab, f"{lab.mark}-a")


@attack("end", "Leave processes behind when the time is up.")
async def survive_the_limit(lab: Laboratory) -> str:
    for seconds in _TIMES_TO_START:
        mark = f"{lab.mark}-{seconds}"
        code = f"mark = {mark!r}\n{_DAEMONS}\nwhile True: time.sleep(1)"
        result = await lab.run(code, timeout=min(seconds, lab.policy.resources.timeout))
        if result.cause != Cause.WALL_TIME:
            raise BrokenError(f"it ended otherwise: {result.cause} {result.stderr[-200:]}")
        if "they live" in result.stdout:
            return await _count_beats(lab, mark)
    raise NotTestedError("the time was up before the processes that try to stay had started")


# Whether three processes have started in time is the host's load, or a processor of software.
_TIMES_TO_START = (2, 8, 30)


async def _count_beats(lab: Laboratory, mark: str) -> str:
    """What a later run of the sandbox sees of their files."""
    tried = await lab.attempts(_SIZES, mark=mark)
    before, after = tried["beats"].removeprefix("got: (").removesuffix(")").split("], [")
    if before.strip("[]") != after.strip("[]"):
        raise BrokenError(f"processes went on after the end: {tried['beats']}")
    return f"three processes wrote while the run lived, and none afterwards: {before.strip('[]')} bytes"


@attack("end", "Keep the host waiting for output: its ends of the streams must never block.")
async def keep_the_host_waiting(lab: Laboratory) -> str:
    require_native(lab)
    code = "import os, time\nprint(*[os.fstat(number).st_ino for number in (1, 2)], flush=True)\ntime.sleep(60)"
    run = await lab.box.start(code)
    try:
        pipes = {f"pipe:[{number}]" for number in (await run.read(wait=10)).stdout.decode().split()}
        blocking = [os.get_blocking(number) for number in _descriptors() if _target(number) in pipes]
    finally:
        await run.kill()
    if not blocking or any(blocking):
        raise BrokenError(f"{blocking.count(True)} of {len(blocking)} ends at the host would block")
    return f"{len(blocking)} ends at the host, none of which blocks"


def _descriptors() -> list[int]:
    return [int(name) for name in os.listdir("/proc/self/fd")]


def _target(number: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{number}")
    except OSError:  # that of the listing itself
        return ""


@use("end", "Cancel a run that is under way.")
async def cancel_a_run(lab: Laboratory) -> str:
    run = await lab.box.start("import time; print('up', flush=True); time.sleep(60)")
    await run.read(wait=10)
    result = await run.kill()
    if result.cause != Cause.CANCELLED:
        raise BrokenError(f"it ended with {result.cause}")
    return "the run ended as cancelled"


@attack("runs", "Find what an earlier run left: a file in /tmp, a module's state, shared memory, a process.")
async def find_an_earlier_run(lab: Laboratory) -> str:
    left = await lab.attempts(
        """
        import json as module
        module.left_behind = True
        attempt("/tmp", lambda: write("/tmp/" + mark))
        attempt("shared memory", lambda: write("/dev/shm/" + mark))
        """,
        mark=lab.mark,
    )
    require_success(left, ["/tmp", "shared memory"])  # or there would be nothing to find
    tried = await lab.attempts(
        """
        import json as module
        attempt("/tmp", lambda: os.path.exists("/tmp/" + mark))
        attempt("state", lambda: hasattr(module, "left_behind"))
        attempt("shared memory", lambda: os.path.exists("/dev/shm/" + mark))
        """,
        mark=lab.mark,
    )
    if tried != dict.fromkeys(("/tmp", "state", "shared memory"), "got: False"):
        raise BrokenError(f"the later run found: {tried}")
    return "none of them was there"


@attack("runs", "Reach a server, and see the processes, of another run that is under way.")
async def reach_a_run_under_way(lab: Laboratory) -> str:
    if lab.policy.backend in _SHARED:
        raise DoesNotApplyError(
            "runs of one container or machine that go on at the same time are one trust domain by design"
        )
    run = await lab.box.start(_SERVER)
    try:
        port = int((await run.read(wait=10)).stdout)
        tried = await lab.attempts(_LOOK, port=port)
    finally:
        await run.kill()
    if lab.policy.network.shares_loopback:
        tried.pop("server", None)  # what the policy asks for
    if any(answer != "refused: ECONNREFUSED" and answer != "got: 1" for answer in tried.values()):
        raise BrokenError(f"the run saw: {tried}")
    return "; ".join(f"{name}: {answer}" for name, answer in tried.items())


_SERVER = """
import socket
with socket.create_server(("127.0.0.1", 0)) as server:
    print(server.getsockname()[1], flush=True)
    while True:
        server.accept()
"""
_LOOK = """
attempt("server", lambda: socket.create_connection(("127.0.0.1", port), timeout=2).close())
attempt("processes", lambda: len([name for name in os.listdir("/proc") if name.isdigit()]))
"""


@attack("runs", "Find files of another sandbox with the same policy.")
async def find_another_sandbox(lab: Laboratory) -> str:
    await lab.box.files.write(f"{lab.mark}-own", "of one sandbox")
    code = 'attempt("file", lambda: os.path.exists(mark)); attempt("all", lambda: os.listdir("/workspace"))'
    async with lab.sandbox() as box:
        tried = await attempts(box, code, mark=f"{lab.mark}-own")
    if tried != {"file": "got: False", "all": "got: []"}:
        raise BrokenError(f"the other sandbox found: {tried}")
    return "its workspace was empty"


@attack("runs", "Run where other sandboxes with the same policy were expected to run, and find their workspaces.")
async def find_a_prepared_workspace(lab: Laboratory) -> str:
    code = """
    with open("/proc/self/mountinfo") as mounts:
        attempt("mounts", lambda: sum(" /workspace " in line for line in mounts))
    attempt("files", lambda: [name for name in os.listdir("/workspace") if name.startswith(mark)])
    """
    mark = f"{lab.mark}-other"
    async with AsyncExitStack() as stack:
        for _ in range(_OTHERS):
            box = await stack.enter_async_context(lab.sandbox())
            await box.run(f"open({mark!r}, 'w').close()")
            await anyio.sleep(_QUIET_SECONDS)
        # More at once than there are runs that were prepared for no sandbox yet.
        found = await asyncio.gather(*(lab.attempts(code, mark=mark) for _ in range(2 * _OTHERS)))
    for tried in found:
        if tried["files"] != "got: []" or tried["mounts"] not in ("got: 0", "got: 1"):
            raise BrokenError(f"a run found: {tried}")
    return f"{len(found)} runs found nothing of {_OTHERS} other sandboxes"


# As many as a cell keeps runs ready, and how long it takes until it prepares one for the sandbox that was used last.
_OTHERS, _QUIET_SECONDS = 2, 0.4


@attack("runs", "Find files in the /tmp that another sandbox keeps.")
async def find_a_kept_tmp(lab: Laboratory) -> str:
    code = 'attempt("file", lambda: os.path.exists("/tmp/" + mark))'
    async with lab.sandbox(keep_tmp=True) as one, lab.sandbox(keep_tmp=True) as other:
        await one.run(f"open('/tmp/{lab.mark}', 'w').close()")
        if (await attempts(one, code, mark=lab.mark)).get("file") != "got: True":
            raise BrokenError("the sandbox did not keep its own /tmp")
        tried = await attempts(other, code, mark=lab.mark)
    if tried != {"file": "got: False"}:
        raise BrokenError(f"the other sandbox found: {tried}")
    return "the one kept its file, and the other did not find it"


@attack("runs", "Search the memory of a run for the source, arguments, variables and input of an earlier one.")
async def find_an_earlier_source(lab: Laboratory) -> str:
    word = secrets.token_hex(20)
    await lab.run(f"secret = {word!r}", args=[word], env={"SECRET": word}, stdin=word)
    for _ in range(2 * _OTHERS):  # runs that were prepared before know nothing of it
        await lab.run("")
    tried = await lab.attempts(SEARCH_MEMORY + 'attempt("memory", in_memory)', **turned_around(word.encode()))
    if tried != {"memory": "got: False"}:
        raise BrokenError(f"the later run found it: {tried}")
    return "a word that was in all four was not in the memory of a later run"


@use("runs", "Leave a file in the workspace for the next run.")
async def share_the_workspace(lab: Laboratory) -> str:
    await lab.attempts("write(mark)", mark=f"{lab.mark}-kept")
    return require_success(await lab.attempts('attempt("file", lambda: read(mark))', mark=f"{lab.mark}-kept"), ["file"])


TRIALS: tuple[Trial, ...] = (
    survive_the_end,
    survive_the_limit,
    keep_the_host_waiting,
    cancel_a_run,
    find_an_earlier_run,
    reach_a_run_under_way,
    find_another_sandbox,
    find_a_prepared_workspace,
    find_a_kept_tmp,
    find_an_earlier_source,
    share_the_workspace,
)
