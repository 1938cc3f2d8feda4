"""Resources: memory, in whatever form. Every attack stops by itself a little past its limit, limit or no limit.

| attack | stopped by | succeeds without it (`ablation.py`) |
|---|---|---|
| memory of one process | memory cgroup; RLIMIT_AS where there is none | `cgroups, rlimits` |
| memory of no process, or of many | memory cgroup; without one, strict policies are refused | `cgroups, rlimits` |
| memory of the kernel that is counted for nobody: access lists, answers of netlink | seccomp | `seccomp` |
| memory in buffers of internet sockets | memory cgroup of version 2; a limit of its own in version 1 | `cgroups` |
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from escape.conftest import MakeSandbox
from escape.laboratory import attack, booty, program
from fumehood import AsyncSandbox, Cause, Status, UnenforceableError

pytestmark = pytest.mark.anyio

MEMORY = 64 << 20


@pytest.fixture
async def roomy(make_sandbox: MakeSandbox) -> AsyncIterator[AsyncSandbox]:
    """So much disk that memory runs out first."""
    async with make_sandbox(resources={"memory": MEMORY, "disk": "256M", "processes": 32, "timeout": 20}) as sandbox:
        yield sandbox


HOARDING = {
    "one large block": """
        found = len(bytearray(192 << 20))
    """,
    "many small blocks": """
        hoard = [bytes(1 << 16) for _ in range(3072)]
        found = len(hoard) << 16
    """,
    "a private mapping": """
        hoard = mmap.mmap(-1, 192 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        for place in range(0, len(hoard), 4096):
            hoard[place] = 1
        found = len(hoard)
    """,
    "a shared mapping": """
        hoard = mmap.mmap(-1, 192 << 20)
        for place in range(0, len(hoard), 4096):
            hoard[place] = 1
        found = len(hoard)
    """,
}


@pytest.mark.every_parameter
@pytest.mark.parametrize("code", HOARDING.values(), ids=HOARDING)
async def test_a_process_cannot_hoard_memory_in(roomy: AsyncSandbox, code: str) -> None:
    result = await roomy.run(program(code))
    assert (result.status, result.cause) == (Status.RESOURCE_EXCEEDED, Cause.MEMORY)
    assert result.peak_memory_bytes <= MEMORY


SHARED_HOARDING = {
    "a memory file": """
        hoard = os.memfd_create("hoard")
        found = sum(os.write(hoard, bytes(1 << 20)) for _ in range(192))
    """,
    "files in /tmp": """
        with open("/tmp/hoard", "wb") as hoard:
            found = sum(hoard.write(bytes(1 << 20)) for _ in range(192))
    """,
    "files in the workspace": """
        with open("hoard", "wb") as hoard:
            found = sum(hoard.write(bytes(1 << 20)) for _ in range(192))
    """,
    "System V shared memory": """
        libc.shmat.restype, found = ctypes.c_void_p, 0
        for _ in range(12):
            place = libc.shmat(libc.shmget(0, 16 << 20, 0o1600), None, 0)
            ctypes.memset(place, 1, 16 << 20)
            libc.shmdt(ctypes.c_void_p(place))
            found += 16 << 20
    """,
    "many processes": """
        (ready, told), (answers, answered) = os.pipe(), os.pipe()
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
        children = []
        for _ in range(6):
            children.append(os.fork())
            if children[-1] == 0:
                hoard = bytearray(32 << 20)
                hoard[::4096] = bytes(8192)
                os.write(told, b"x")
                os.close(told)
                signal.sigwait([signal.SIGUSR1])
                os.write(answered, b"x")
                os._exit(0)
        os.close(told), os.close(answered)
        while os.read(ready, 1):  # until all have what they want, or are dead
            pass
        for child in children:
            os.kill(child, signal.SIGUSR1)
        found = sum(1 for _ in iter(lambda: os.read(answers, 1), b"")) << 25
    """,
    "pipes": """
        found, pipes = 0, []
        for _ in range(120):
            pipes.append(os.pipe2(os.O_NONBLOCK))
            fcntl.fcntl(pipes[-1][1], fcntl.F_SETPIPE_SZ, 1 << 20)
            while outcome(lambda: os.write(pipes[-1][1], bytes(4096))) == "GOT 4096":
                found += 4096
    """,
    "buffers of local sockets": """
        found, pairs = 0, []
        for _ in range(120):
            pairs.append(socket.socketpair())
            pairs[-1][0].setblocking(False)
            pairs[-1][0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 24)
            while outcome(lambda: pairs[-1][0].send(bytes(4096))) == "GOT 4096":
                found += 4096
    """,
    "buffers of TCP": """
        server = socket.create_server(("127.0.0.1", 0))
        found, sockets = 0, []
        while found < 192 << 20 and len(sockets) < 200:
            sockets += [socket.create_connection(server.getsockname()), server.accept()[0]]
            sockets[-2].setblocking(False)
            while found < 192 << 20 and outcome(lambda: sockets[-2].send(bytes(32768))) == "GOT 32768":
                found += 32768
    """,
    "buffers of UDP": """
        found, sockets = 0, []
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        for _ in range(200):
            sockets.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            sockets[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
            sockets[-1].bind(("127.0.0.1", 0))
            sockets[-1].setblocking(False)
            for _ in range(400):
                sender.sendto(bytes(1400), sockets[-1].getsockname())
        for receiver in sockets:
            while outcome(lambda: receiver.recv(2000)).startswith("GOT"):
                found += 1400
    """,
}


@pytest.mark.every_parameter
@pytest.mark.parametrize("code", SHARED_HOARDING.values(), ids=SHARED_HOARDING)
async def test_a_run_cannot_hoard_memory_in(make_sandbox: MakeSandbox, roomy: AsyncSandbox, code: str) -> None:
    """Only a cgroup counts what belongs to no process, or to many; without one a strict policy is refused."""
    if "cgroup" not in roomy.enforcement["resources.memory"]:
        with pytest.raises(UnenforceableError, match=r"resources\.memory"):
            async with make_sandbox(strict=True, resources={"memory": MEMORY}):
                raise AssertionError("opened")
        return
    result = await roomy.run(program(code))
    was_stopped = (result.status, result.cause) == (Status.RESOURCE_EXCEEDED, Cause.MEMORY)
    assert was_stopped or booty(result) <= MEMORY


async def test_no_access_list_takes_memory_of_the_kernel(roomy: AsyncSandbox) -> None:
    code = """
    entries = b"".join(struct.pack("<HHI", tag, 6, 0xFFFFFFFF) for tag in (1, 4, 16, 32))
    open("file", "w").close()
    found = outcome(lambda: os.setxattr("file", "system.posix_acl_access", struct.pack("<I", 2) + entries))
    """
    assert await attack(roomy, code) in ("ENOTSUP", "EOPNOTSUPP")


async def test_no_answers_can_pile_up_in_netlink_sockets(roomy: AsyncSandbox) -> None:
    code = "found = outcome(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0))"
    assert await attack(roomy, code) == "EAFNOSUPPORT"
