"""Privileges: who the program is, what it could become, and whom it can bother.

| attack | stopped by | succeeds without it (`ablation.py`) |
|---|---|---|
| becoming somebody else | one uid is mapped | `real-root` |
| capabilities | all sets empty and locked | `capabilities` |
| set-uid programs | no_new_privs, nosuid, uid 0 is not mapped | `real-root` |
| throwing filters off by executing | the kernel: they are inherited for good | `seccomp`, `landlock` |
| bothering process 1 | another user's (not rootless), Landlock scope | `real-root` |
| ending process 1 | the kernel: its namespace cannot | `process-namespace, landlock` (rootless) |
| priorities | no capability, rlimits of 0 | `real-root` |
| raising limits | hard limits | `rlimits` |
"""

from __future__ import annotations

import signal

import pytest

from escape.laboratory import attack, booty, number_of, program
from fumehood import AsyncSandbox, Cause

pytestmark = pytest.mark.anyio

STATUS = """
    lines = (line.rstrip("\\n").split(":\\t", 1) for line in open("/proc/self/status"))
    status = dict(line for line in lines if len(line) == 2)
"""

BECOMING = {
    "setuid": "os.setuid(0)",
    "setgid": "os.setgid(0)",
    "setresuid": "os.setresuid(0, 0, 0)",
    "setreuid": "os.setreuid(-1, 0)",
    "setgroups": "os.setgroups([0])",
    "another unprivileged user": "os.setuid(1001)",
    "nobody": "os.setuid(65534)",
}


@pytest.mark.parametrize("way", BECOMING.values(), ids=BECOMING)
async def test_the_program_cannot_become_somebody_else_by(sandbox: AsyncSandbox, way: str) -> None:
    found = await attack(sandbox, f"found = [outcome(lambda: {way}), os.getresuid(), os.getresgid()]")
    assert found[0] in ("EPERM", "EINVAL")  # EINVAL: there is no such user inside
    assert found[1:] == [[1000] * 3, [1000] * 3]


async def test_there_is_one_user_in_the_map(sandbox: AsyncSandbox) -> None:
    found = await attack(sandbox, "found = [open(f'/proc/self/{kind}_map').read().split() for kind in ('uid', 'gid')]")
    assert [[inside, count] for inside, _, count in found] == [["1000", "1"]] * 2


@pytest.mark.parametrize("kind", ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"])
async def test_a_capability_set_is_empty(sandbox: AsyncSandbox, kind: str) -> None:
    assert int(await attack(sandbox, f"{STATUS}\n    found = status[kind]", kind=kind), 16) == 0


CAPABILITY_CALLS = {
    "setting them": "capset",
    "ambient ones": "libc.prctl(47, 2, 21, 0, 0)",
    "keeping them": "libc.prctl(8, 1, 0, 0, 0)",
    "security bits": "libc.prctl(28, 0, 0, 0, 0)",
}


@pytest.mark.parametrize("way", CAPABILITY_CALLS.values(), ids=CAPABILITY_CALLS)
async def test_capabilities_cannot_be_had_by(sandbox: AsyncSandbox, way: str) -> None:
    code = """
        def prctl(result):
            if result < 0:
                raise OSError(ctypes.get_errno(), "")
            return result

        header, everything = struct.pack("Ii", 0x20080522, 0), struct.pack("6I", *[0xFFFFFFFF] * 6)
        found = outcome(lambda: prctl(eval(way)))
    """
    way = "libc.capset(header, everything)" if way == "capset" else way
    assert await attack(sandbox, code, way=way) == "EPERM"


async def test_new_privileges_are_forbidden_also_after_executing(sandbox: AsyncSandbox) -> None:
    code = """
        import subprocess
        script = "grep -E '^(NoNewPrivs|Seccomp|CapBnd)' /proc/self/status"
        found = subprocess.run(["sh", "-c", script], capture_output=True, text=True).stdout.split()
    """
    expected = ["CapBnd:", "0000000000000000", "NoNewPrivs:", "1", "Seccomp:", "2", "Seccomp_filters:", "1"]
    assert await attack(sandbox, code) == expected


async def test_landlock_holds_after_executing(sandbox: AsyncSandbox) -> None:
    """Its scope is what keeps signals from process 1 where that is the same user's."""
    code = """
        import subprocess
        script = "import os; os.kill(1, 0)"
        found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stderr.splitlines()[-1:]
    """
    assert await attack(sandbox, code) == ["PermissionError: [Errno 1] Operation not permitted"]


async def test_a_set_uid_program_gives_no_root(sandbox: AsyncSandbox) -> None:
    code = """
        import glob, subprocess
        files = filter(os.path.isfile, glob.glob("/usr/bin/*"))
        programs = [path for path in files if os.stat(path).st_mode & stat.S_ISUID]
        found = [len(programs)]
        for path in programs:
            runner = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=-3, stderr=-3)
            found.append([os.stat(f"/proc/{runner.pid}").st_uid, path])
            runner.kill()
            runner.wait()
    """
    count, *owners = await attack(sandbox, code)
    if not count:
        pytest.skip("this host has no set-uid program")
    assert {owner for owner, _ in owners} == {1000}


DISTURBANCES = {
    "being stopped": "os.kill(1, signal.SIGSTOP)",
    "being killed": "os.kill(1, signal.SIGKILL)",
    "a storm of SIGCHLD": "[os.kill(1, signal.SIGCHLD) for _ in range(10000)]",
    "a queued signal": "call(rt_sigqueueinfo, 1, 17, struct.pack('iii', 17, 0, -1) + bytes(116))",
    "a signal by descriptor": "signal.pidfd_send_signal(os.pidfd_open(1), signal.SIGTERM)",
    "a lower priority": "os.setpriority(os.PRIO_PROCESS, 1, 19)",
    "the idle class": "os.sched_setscheduler(1, os.SCHED_IDLE, os.sched_param(0))",
    "a lower class of disk access": "call(ioprio_set, 1, 1, 3 << 13)",
}


@pytest.mark.parametrize("way", DISTURBANCES.values(), ids=DISTURBANCES)
async def test_process_1_is_not_disturbed_by(sandbox: AsyncSandbox, way: str) -> None:
    numbers = {name: number_of(name) for name in ("rt_sigqueueinfo", "ioprio_set")}
    assert await attack(sandbox, f"found = outcome(lambda: {way})", **numbers) == "EPERM"


@pytest.mark.parametrize("number", [*range(1, 32), *range(34, 65)], ids=lambda number: f"signal {number}")
async def test_process_1_outlives(sandbox: AsyncSandbox, number: signal.Signals) -> None:
    result = await sandbox.run(program("found = outcome(lambda: os.kill(1, number))", number=number))
    assert result.cause is Cause.EXIT  # the end of process 1 would be that of the run
    assert booty(result) in ("EPERM", "GOT None")


@pytest.mark.parametrize("limit", ["NOFILE", "AS", "CPU", "NPROC", "SIGPENDING"])
async def test_limits_of_process_1_are_no_way_to_an_ending_without_a_cause(sandbox: AsyncSandbox, limit: str) -> None:
    """Where it is the same user's, the program may set them, as long as that ends nothing but its own run."""
    code = "found = outcome(lambda: resource.prlimit(1, getattr(resource, f'RLIMIT_{limit}'), (0, 0)))"
    result = await sandbox.run(program(code, limit=limit) + "os._exit(7)")
    assert booty(result).startswith(("EPERM", "GOT"))
    assert result.cause in (Cause.EXIT, Cause.SIGNAL)
    assert await attack(sandbox, "found = 42") == 42


PRIORITIES = {
    "nice": "os.nice(-5)",
    "priority": "os.setpriority(os.PRIO_PROCESS, 0, -20)",
    "first in, first out": "os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))",
    "round robin": "os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))",
    "deadlines": "call(number, 0, struct.pack('IIQiIQQQ', 48, 6, 0, 0, 0, 10**7, 10**8, 10**8), 0)",
}


@pytest.mark.parametrize("way", PRIORITIES.values(), ids=PRIORITIES)
async def test_priority_cannot_be_had_by(sandbox: AsyncSandbox, way: str) -> None:
    found = await attack(sandbox, f"found = outcome(lambda: {way})", number=number_of("sched_setattr"))
    assert found in ("EPERM", "EACCES")


LIMITS = ["NPROC", "NOFILE", "FSIZE", "MEMLOCK", "MSGQUEUE", "NICE", "RTPRIO", "SIGPENDING"]


@pytest.mark.parametrize("name", LIMITS)
async def test_a_limit_cannot_be_raised(sandbox: AsyncSandbox, name: str) -> None:
    code = """
        kind = getattr(resource, f"RLIMIT_{name}")
        hard = resource.getrlimit(kind)[1]
        try:
            resource.setrlimit(kind, (hard + 1, hard + 1) if hard >= 0 else (-1, -1))
            found = f"GOT {hard} and more"
        except ValueError:
            found = "refused"
    """
    assert await attack(sandbox, code, name=name) == "refused"


async def test_memory_cannot_be_locked_past_the_limit(sandbox: AsyncSandbox) -> None:
    code = """
        page = mmap.mmap(-1, 32 << 20)
        found = outcome(lambda: call(number, ctypes.addressof(ctypes.c_char.from_buffer(page)), 32 << 20))
    """
    assert await attack(sandbox, code, number=number_of("mlock")) in ("ENOMEM", "EPERM", "EAGAIN")
