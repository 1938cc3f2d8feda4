"""The guest of a container shares its folders, and on most engines its user, with programs: none may lead it astray."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path

import anyio
import engine
import pytest
from live.traces import containers, wait_until
from requirements import require

from fumehood import AsyncBackgroundRun, AsyncSandbox, Cause, Policy, Stdout
from fumehood.backends.docker import DockerBackend
from fumehood.backends.relay.pool import GuestPool
from fumehood.backends.selection import select_backend
from fumehood.errors import StepFailedError

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]

UP = "print('up', flush=True)\n"
WAIT = f"{UP}input()"
OWNER = 4242


@pytest.fixture(params=engine.BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    require(engine.missing() is None, engine.missing() or "")
    engine.use()
    return request.param


@pytest.fixture
def mount() -> Iterator[Path]:
    """A folder that programs may write, with a file in it that they may not change."""
    folder = Path(tempfile.mkdtemp(prefix="hood-guest-", dir="/var/tmp"))
    try:
        os.chown(folder, OWNER, OWNER)
        folder.chmod(0o1755)
        (folder / "kept").write_text("x")
        (folder / "kept").chmod(0o600)
        yield folder
    finally:
        shutil.rmtree(folder)


@asynccontextmanager
async def _under_way(box: AsyncSandbox, code: str) -> AsyncIterator[AsyncBackgroundRun]:
    """A run that waits for a line, from when it has said that it is up."""
    run = await box.start(code)
    async for event in run.stream():
        assert isinstance(event, Stdout), event
        break
    try:
        yield run
    finally:
        await run.kill()


PLANT_LINK = """
import os, time
print("up", flush=True)
while True:
    for name in os.listdir("/run"):
        if len(name) == 16 and not os.path.islink("/run/" + name):
            try:
                os.rename("/run/" + name, "/run/moved-" + name)
                os.symlink(target, "/run/" + name)
            except OSError:
                pass
"""
AWAIT_LINK = """
import os, time
folder = os.path.dirname(__file__)
while not os.path.islink(folder):
    time.sleep(0.01)
"""


async def test_clearing_up_after_a_run_follows_no_link_into_a_mount(backend: str, mount: Path) -> None:
    (mount / "folder").mkdir()
    (mount / "folder" / "file").write_text("x")
    entry = {"source": str(mount), "target": "/mnt", "mode": "rw"}
    async with AsyncSandbox(Policy(backend=backend, filesystem={"mounts": [entry]})) as box:
        async with _under_way(box, f"target = '/mnt'\n{PLANT_LINK}"):
            assert (await box.run(AWAIT_LINK)).ok
        assert (mount / "kept").read_text() == "x"
        assert (mount / "folder" / "file").exists()
        assert (await box.run("print(1)")).stdout == "1\n"


async def test_no_link_makes_the_guest_open_its_own_folder_to_programs(backend: str, mount: Path) -> None:
    entry = {"source": str(mount), "target": "/mnt", "mode": "rw"}
    async with AsyncSandbox(Policy(backend=backend, filesystem={"mounts": [entry]})) as box:
        async with _under_way(box, f"target = '/mnt/kept'\n{PLANT_LINK}"):
            for _ in range(12):
                await box.run("pass")
        assert (mount / "kept").stat().st_mode & 0o777 == 0o600


FAILURES = {
    "the run's own folder is gone": "shutil.rmtree(os.path.dirname(__file__)); sys.exit(3)",
    "the run's own folder is a file": (
        "here = os.path.dirname(__file__); shutil.rmtree(here); open(here, 'w').close(); sys.exit(3)"
    ),
    "the run's own folder is a pipe": "here = os.path.dirname(__file__); shutil.rmtree(here); os.mkfifo(here)",
    "the folder of all runs is closed": "os.chmod('/run', 0)",
    "a folder in a folder is closed": "os.makedirs('/tmp/a/b/c'); os.chmod('/tmp/a/b', 0); os.chmod('/tmp/a', 0)",
    "a folder of the run is closed": "os.chmod(os.path.dirname(__file__), 0)",
    "every process is sent a signal": "[kill(int(name), 9) for name in os.listdir('/proc') if name.isdigit()]",
    "every process is stopped": "[kill(int(name), 19) for name in os.listdir('/proc') if name.isdigit()]",
    "every process has limits": (
        "[limit(int(name), kind) for name in os.listdir('/proc') if name.isdigit() for kind in range(16)]"
    ),
}
TOOLS = """
import os, resource, shutil, sys
def attempt(action, *arguments):
    try:
        action(*arguments)
    except (OSError, ValueError):
        pass
def kill(process, number):
    if process != os.getpid():
        attempt(os.kill, process, number)
def limit(process, kind):
    if process != os.getpid():
        attempt(resource.prlimit, process, kind, (0, 0))
"""


@pytest.mark.parametrize("is_alone", [True, False])
@pytest.mark.parametrize("attack", FAILURES.values(), ids=FAILURES)
async def test_a_container_outlives_a_run_in_which(backend: str, attack: str, is_alone: bool) -> None:
    if is_alone and "own folder" in attack:
        pytest.skip("its folder is a mount")
    async with AsyncSandbox(Policy(backend=backend)) as box:
        if is_alone:
            await box.run(f"{TOOLS}\n{attack}")
        else:
            async with _under_way(box, WAIT):
                await box.run(f"{TOOLS}\n{attack}")
        assert (await box.run("print(1)")).stdout == "1\n"


TAKE_PROCESSES = """
import os, time
try:
    while True:
        if os.fork() == 0:
            time.sleep(100)
except OSError:
    pass
print("up", flush=True)
input()
"""


async def test_a_run_for_which_no_process_is_left_is_refused_and_the_next_one_works(backend: str) -> None:
    async with AsyncSandbox(Policy(backend=backend, resources={"processes": 20})) as box:
        async with _under_way(box, TAKE_PROCESSES):
            # On gVisor processes are counted for each run.
            with pytest.raises(StepFailedError) if backend == "docker" else nullcontext():
                assert (await box.run("print(1)")).ok
        assert (await box.run("print(1)")).stdout == "1\n"


TAKE_DESCRIPTORS = """
import os, socket
pairs = []
nothing = os.open("/dev/null", os.O_RDONLY)
try:
    while True:
        pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        pairs.append(pair)
        pair[0].setblocking(False)
        for _ in range(8):
            socket.send_fds(pair[0], [b"x"], [nothing] * 250)
except OSError:
    pass
print("up", flush=True)
input()
"""


async def test_descriptors_that_a_program_keeps_under_way_keep_no_run_from_starting(backend: str) -> None:
    policy = Policy(backend=backend, resources={"open_files": 8192})
    async with AsyncSandbox(policy) as box, _under_way(box, TAKE_DESCRIPTORS):
        assert (await box.run("print(1)")).stdout == "1\n"


LEAVE_IPC = """
import ctypes
libc = ctypes.CDLL(None)
print(min(libc.shmget(0x686f6f64, 4096, 0o1000), libc.semget(0x686f6f64, 1, 0o1000), libc.msgget(0x686f6f64, 0o1000)))
"""
FIND_IPC = """
import ctypes
libc = ctypes.CDLL(None)
print(libc.shmget(0x686f6f64, 0, 0), libc.semget(0x686f6f64, 0, 0), libc.msgget(0x686f6f64, 0))
"""


async def test_the_next_run_finds_no_ipc_object_that_nobody_may_read(backend: str) -> None:
    async with AsyncSandbox(Policy(backend=backend)) as box:
        await box.run(LEAVE_IPC)
        assert (await box.run(FIND_IPC)).stdout == "-1 -1 -1\n"


async def test_a_paused_spare_is_not_handed_out(backend: str) -> None:
    policy = Policy(backend=backend, resources={"memory": "301M"})
    paused = await _pause_spare(policy)
    with anyio.fail_after(20):
        async with AsyncSandbox(policy) as box:
            assert (await box.run("print(1)")).stdout == "1\n"
    wait_until(lambda: paused not in _containers(policy), 60, "the paused one is removed")


async def test_nothing_is_left_of_a_paused_container_when_it_has_been_closed(backend: str) -> None:
    policy = Policy(backend=backend, resources={"memory": "302M"})
    paused = await _pause_spare(policy)
    _, (container, _) = _pool(policy)._spares.popitem()
    await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(container.close(), container.loop))
    # The engine may be at it already: a container that ends removes itself, and is listed until that is done.
    wait_until(lambda: paused not in _containers(policy), 30, "it is removed")


async def _pause_spare(policy: Policy) -> str:
    """The identifier of a container that waits for the next sandbox with this policy, and is paused."""
    for _ in range(2):
        async with AsyncSandbox(policy) as box:
            assert (await box.run("pass")).ok
    wait_until(lambda: [*_pool(policy)._spares] and len(_containers(policy)) == 1, 60, "a spare")
    (spare,) = _containers(policy)
    done = engine.docker(engine.folder(), "pause", spare)
    assert done.returncode == 0, done.stderr
    return spare


def _pool(policy: Policy) -> GuestPool:
    backend = select_backend(policy)
    assert isinstance(backend, DockerBackend)
    assert backend._pool is not None
    return backend._pool


def _containers(policy: Policy) -> list[str]:
    return containers(engine.folder(), f"fumehood.policy={policy.digest}")


HOLDS = """
import socket
with socket.socket(socket.AF_UNIX) as listener:
    listener.bind("/tmp/meeting")
    listener.listen()
    print("up", flush=True)
    line, _ = listener.accept()
    _, held, _, _ = socket.recv_fds(line, 1, 2)
input()
"""
GIVES = """
import socket
line = socket.socket(socket.AF_UNIX)
line.connect("/tmp/meeting")
socket.send_fds(line, [b"x"], [1, 2])
print("mine" + "x" * 300_000)
"""


async def test_a_run_is_over_at_once_although_another_holds_its_streams(backend: str) -> None:
    async with AsyncSandbox(Policy(backend=backend)) as box, _under_way(box, HOLDS):
        with anyio.fail_after(4):
            result = await box.run(GIVES)
        assert (result.ok, len(result.stdout)) == (True, 300_005)


ASK_AND_ASK = """
import os, socket, struct
for _ in range(2):
    os.fork()

with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
    line.connect(("127.0.0.1", 53))
    number = 0
    while True:
        number += 1
        label = b"n%d" % number
        question = bytes([len(label)]) + label + bytes([7]) + b"example" + bytes([3]) + b"com" + bytes(1)
        try:
            line.send(struct.pack(">6H", 1, 256, 1, 0, 0, 0) + question + struct.pack(">HH", 1, 1))
        except OSError:
            pass
"""


@pytest.mark.serial
async def test_questions_without_end_do_not_put_off_the_end_of_a_run(backend: str) -> None:
    async with AsyncSandbox(
        Policy(backend=backend, network={"allow": [{"host": "example.org", "ports": [443]}]})
    ) as box:
        assert (await box.run("pass")).ok
        started = time.monotonic()
        result = await box.run(ASK_AND_ASK, timeout=4)
        seconds = time.monotonic() - started
        assert result.cause is Cause.WALL_TIME
        assert seconds < 4 + 1
        assert (await box.run("print(1)")).stdout == "1\n"
