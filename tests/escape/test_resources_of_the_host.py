"""Resources that the kernel counts for a user or for the whole host, and ways to hold up others on the host.

| attack | stopped by | succeeds without it (`ablation.py`) |
|---|---|---|
| terminals | `max=` of the run's own devpts | `terminals-counted` |
| signals and timers that wait | RLIMIT_SIGPENDING | `rlimits` |
| huge pages | seccomp, which looks at the flags | `seccomp` |
| leases on files of the host | seccomp knows which fcntl commands are harmless | `seccomp` |
| device nodes by renaming | seccomp, which looks at the flags | `seccomp` |
| priorities of all processes of the user | seccomp | `seccomp` |
| watches on files | limits of the run's user namespace | `watches-counted` |
| descriptors in flight | a uid range for each cell (root) | known limit in containers and as an ordinary user |
| the host's handler of core dumps | RLIMIT_CORE is 1, and seccomp ignores who sets it | `seccomp` |

Every attack stops by itself a little past its limit, limit or no limit.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from ordinary import own

from escape.conftest import MakeSandbox
from escape.laboratory import attack, lingering_attack, number_of
from fumehood import AsyncSandbox
from fumehood.guest.contract.limits import MOST_TERMINALS
from fumehood.guest.isolation.run import MOST_PENDING_SIGNALS

pytestmark = pytest.mark.anyio


async def test_terminals_are_counted(make_sandbox: MakeSandbox) -> None:
    code = """
        found, held = 0, []
        while found < 200 and outcome(lambda: held.append(os.openpty())) == "GOT None":
            found += 1
    """
    async with make_sandbox(resources={"open_files": 1024}) as sandbox:
        assert await attack(sandbox, code) <= MOST_TERMINALS


QUEUEING = {
    "signals": """
        signal.pthread_sigmask(signal.SIG_BLOCK, [40])
        queue = lambda: call(rt_sigqueueinfo, os.getpid(), 40, struct.pack('iii', 40, 0, -1) + bytes(116))
    """,
    "timers": """
        identifier = ctypes.create_string_buffer(8)
        queue = lambda: call(timer_create, 1, 0, identifier)
    """,
}


@pytest.mark.parametrize("code", QUEUEING.values(), ids=QUEUEING)
async def test_what_waits_is_counted(sandbox: AsyncSandbox, code: str) -> None:
    count = """
        found = 0
        while found < 1000 and outcome(queue) == "GOT 0":
            found += 1
    """
    numbers = {name: number_of(name) for name in ("rt_sigqueueinfo", "timer_create")}
    assert await attack(sandbox, code + count, **numbers) <= MOST_PENDING_SIGNALS


# Not reserved, so that the kernel hands out the promise even where it has no huge page.
HUGE_PAGES = {
    "a mapping": ("mmap", "0, 1 << 21, 3, 0x44022, -1, 0", "ENOMEM"),
    "a mapping, behind upper bits": ("mmap", "0, 1 << 21, 3, 0x7fff00044022, -1, 0", "ENOMEM"),
    "a shared segment": ("shmget", "0, 1 << 21, 0o15600", "ENOMEM"),
    "a memory file": ("memfd_create", "b'huge', 4", "EINVAL"),
}


@pytest.mark.parametrize(("name", "arguments", "answer"), HUGE_PAGES.values(), ids=HUGE_PAGES)
async def test_the_hosts_huge_pages_cannot_be_had_by(
    sandbox: AsyncSandbox, name: str, arguments: str, answer: str
) -> None:
    found = await attack(sandbox, f"found = outcome(lambda: call(number, {arguments}))", number=number_of(name))
    assert found == answer


@pytest.fixture
def shared_folder(host_folder: Path) -> Path:
    (host_folder / "data.txt").write_text("original")
    own(host_folder)
    return host_folder


@pytest.fixture
async def reading_sandbox(make_sandbox: MakeSandbox, shared_folder: Path) -> AsyncIterator[AsyncSandbox]:
    mount = {"source": str(shared_folder), "target": "/data", "mode": "ro"}
    async with make_sandbox(filesystem={"mounts": [mount]}) as sandbox:
        yield sandbox


LEASES = {
    "a lease": "fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)",
    "a lease, behind upper bits": "call(number, file, 0x7fff00000400, fcntl.F_RDLCK)",
    "a note of changes": "fcntl.fcntl(os.open('/data', os.O_RDONLY), fcntl.F_NOTIFY, fcntl.DN_ACCESS)",
}


@pytest.mark.parametrize("way", LEASES.values(), ids=LEASES)
async def test_a_read_only_mount_gives_no(reading_sandbox: AsyncSandbox, way: str) -> None:
    """Whoever writes the file on the host would have to wait for its holder."""
    code = f"file = os.open('/data/data.txt', os.O_RDONLY)\n        found = outcome(lambda: {way})"
    assert await attack(reading_sandbox, f"\n        {code}", number=number_of("fcntl")) == "EINVAL"


async def test_a_rename_leaves_no_device_on_a_writable_mount(make_sandbox: MakeSandbox, shared_folder: Path) -> None:
    mount = {"source": str(shared_folder), "target": "/data", "mode": "rw"}
    code = "found = outcome(lambda: call(number, -100, b'/data/data.txt', -100, b'/data/moved', 4))"
    async with make_sandbox(filesystem={"mounts": [mount]}) as sandbox:
        assert await attack(sandbox, code, number=number_of("renameat2")) == "EINVAL"
    assert (shared_folder / "data.txt").is_file()


PRIORITIES = {
    "processors": "os.setpriority(os.PRIO_USER, 0, 19)",
    "processors, of a number": "os.setpriority(os.PRIO_USER, os.getuid(), 19)",
    "disks": "call(number, 3, 0, 3 << 13)",
    "disks, of a number": "call(number, 3, os.getuid(), 3 << 13)",
}


@pytest.mark.parametrize("way", PRIORITIES.values(), ids=PRIORITIES)
async def test_a_program_has_no_say_about_all_processes_of_its_user_at(sandbox: AsyncSandbox, way: str) -> None:
    assert await attack(sandbox, f"found = outcome(lambda: {way})", number=number_of("ioprio_set")) == "EPERM"


async def test_one_run_cannot_take_all_watches_from_the_others(make_sandbox: MakeSandbox) -> None:
    code = "found = sum(1 for _ in range(250) if libc.inotify_init1(0) >= 0)"
    async with make_sandbox() as one, make_sandbox() as other, lingering_attack(one, code):
        assert await attack(other, "found = libc.inotify_init1(0)") >= 0


# A socket that waits in another one's queue, with all that waits in its own.
IN_FLIGHT = """
    found, held = 0, []
    while found < 600:
        pair = socket.socketpair()
        held.append(pair)
        if not outcome(lambda: socket.send_fds(pair[0], [b"x"], [0] * 50)).startswith("GOT"):
            break
        found += 50
"""


@pytest.mark.xfail(os.geteuid() != 0, reason="the kernel counts descriptors in flight by user", strict=True)
async def test_descriptors_in_flight_are_not_taken_from_sandboxes_of_other_policies(make_sandbox: MakeSandbox) -> None:
    other = make_sandbox(resources={"memory": "96M"})
    code = "pair = socket.socketpair(); found = outcome(lambda: socket.send_fds(pair[0], [b'x'], [0]))"
    async with make_sandbox() as one, other, lingering_attack(one, IN_FLIGHT):
        assert await attack(other, code) == "GOT 1"


CHANGING_THE_LIMIT = {
    "setrlimit": "resource.setrlimit(resource.RLIMIT_CORE, (0, 0))",
    "prlimit of its own number": "resource.prlimit(os.getpid(), resource.RLIMIT_CORE, (0, 0))",
    "the soft one alone": "resource.setrlimit(resource.RLIMIT_CORE, (0, 1))",
    "a pointer that looks like none": """call(
        number, 0, 4, libc.mmap(ctypes.c_void_p(1 << 32), ctypes.c_size_t(4096), 3, 0x100022, -1, ctypes.c_long(0)), 0
    )""",
    "being dumpable": "libc.prctl(4, 1, 0, 0, 0)",
}


@pytest.mark.parametrize("way", CHANGING_THE_LIMIT.values(), ids=CHANGING_THE_LIMIT)
async def test_the_hosts_handler_of_core_dumps_is_not_started_despite(sandbox: AsyncSandbox, way: str) -> None:
    """The kernel starts none for a process whose limit is exactly 1."""
    code = """
        import subprocess
        libc.mmap.restype = ctypes.c_void_p
        outcome(lambda: eval(way))
        script = "import resource; print(*resource.getrlimit(resource.RLIMIT_CORE))"
        after = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout.split()
        found = [list(resource.getrlimit(resource.RLIMIT_CORE)), after]
    """
    assert await attack(sandbox, code, way=way, number=number_of("prlimit64")) == [[1, 1], ["1", "1"]]
