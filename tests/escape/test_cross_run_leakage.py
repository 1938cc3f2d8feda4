"""Leaks between runs: what one leaves behind for the next, and what two at the same time see of each other.

| attack | stopped by | succeeds without it (`ablation.py`) |
|---|---|---|
| files outside of the workspace | each run has its own /tmp, /dev/shm and /run | `scratch-folders` |
| System V message passing | an IPC namespace for each run | `ipc-namespace` |
| processes and their numbers | a process namespace for each run | `process-namespace` |
| ports and abstract sockets | a network namespace for each run | `run-network-namespace` |
| state of the interpreter and the process | each run is a new fork of the cell | cannot be taken away |
| the source of an earlier run | the cell never reads it | `requests-unread` |
| randomness | made anew in each run | `randomness` |
| the workspace of another sandbox | one mount for each sandbox | `workspaces`, `workspaces-removed` |
| a standby that another sandbox expected to use | moves out of its workspace first | `moving-in`, `moving-out` |
| the kept /tmp of another sandbox | likewise one mount for each | `kept-tmp` |
| the cell of another policy | the policy's digest is the cell's key | `cells-by-policy` |
| hash seed, memory layout, locks on host files | nothing | known limits, expected to fail |
"""

from __future__ import annotations

from contextlib import AsyncExitStack

import anyio
import pytest
from containers import LendSandbox

from escape.conftest import MakeSandbox
from escape.laboratory import SCAN_MEMORY, attack, lingering_attack, number_of
from fumehood import AsyncSandbox, Policy
from fumehood.backends.native.cell_spec import STANDBYS

pytestmark = pytest.mark.anyio

LEFTOVERS = {
    "a file in /tmp": ("open('/tmp/left', 'w').close()", "os.stat('/tmp/left')"),
    "a file in /var/tmp": ("open('/var/tmp/left', 'w').close()", "os.stat('/var/tmp/left')"),
    "a file in /dev/shm": ("open('/dev/shm/left', 'w').close()", "os.stat('/dev/shm/left')"),
    "a file in /run": ("open('/run/left', 'w').close()", "os.stat('/run/left')"),
    "shared memory": ("call(shmget, 0x686f6f64, 4096, 0o1666)", "call(shmget, 0x686f6f64, 4096, 0)"),
    "a semaphore": ("call(semget, 0x686f6f64, 1, 0o1666)", "call(semget, 0x686f6f64, 1, 0)"),
    "a message queue": ("call(msgget, 0x686f6f64, 0o1666)", "call(msgget, 0x686f6f64, 0)"),
    "a variable": ("os.environ.update(LEFT='x')", "os.environ['LEFT']"),
    "a module": ("sys.modules.update(left=sys)", "sys.modules['left']"),
    "a patched module": ("setattr(json, 'left', 1)", "json.left"),
    "a patched builtin": ("setattr(__builtins__, 'left', 1)", "__builtins__.left"),
    "a search path": ("sys.path.append('/left')", "sys.path[sys.path.index('/left')]"),
    "an exit handler": ("__import__('atexit').register(print)", "{0: 1}[__import__('atexit')._ncallbacks() - 1]"),
    "a signal handler": ("signal.signal(10, signal.SIG_IGN)", "{1: 0}[int(signal.getsignal(10))]"),
    "a umask": ("os.umask(0)", "{0: 0}[os.umask(0)]"),
    "a limit": ("resource.setrlimit(7, (99, 99))", "{99: 0}[resource.getrlimit(7)[0]]"),
    "a name of the process": (
        "libc.prctl(15, b'left', 0, 0, 0)",
        "{'left': 0}[open('/proc/self/comm').read().strip()]",
    ),
    "a priority": ("os.nice(5)", "{5: 0}[os.nice(0)]"),
}
# How long it takes at most until a cell that has nothing else to do has its standbys again.
_TO_STAND_BY_SECONDS = 0.3
CALLS = ("shmget", "semget", "msgget")


@pytest.mark.every_parameter
@pytest.mark.parametrize(("leave", "look"), LEFTOVERS.values(), ids=LEFTOVERS)
async def test_the_next_run_does_not_find(sandbox: AsyncSandbox, leave: str, look: str) -> None:
    numbers = {name: number_of(name) for name in CALLS}
    search = f"""
        def look():
            try:
                return {look}
            except (KeyError, AttributeError, ValueError):
                raise OSError(errno.ENOENT, "") from None

        found = outcome(look)
    """
    in_same_run = await attack(sandbox, f"{leave}\nfound = outcome(lambda: {look})[:3]", **numbers)
    assert in_same_run == "GOT", "the trap does not work"
    assert await attack(sandbox, search, **numbers) == "ENOENT"


async def test_the_workspace_is_what_runs_of_one_sandbox_share(sandbox: AsyncSandbox) -> None:
    await attack(sandbox, "found = open('/workspace/kept', 'w').write('x')")
    assert await attack(sandbox, "found = os.listdir('/workspace')") == ["kept"]


async def test_another_sandbox_does_not_find_the_workspace(lend_sandbox: LendSandbox) -> None:
    async with lend_sandbox() as first, lend_sandbox() as second:
        await attack(first, "found = open('/workspace/left', 'w').write('x')")
        assert await attack(second, "found = os.listdir('/workspace')") == []


async def test_a_closed_sandbox_leaves_no_workspace(make_sandbox: MakeSandbox) -> None:
    async with make_sandbox() as first:
        await attack(first, "found = open('/workspace/left', 'w').write('x')")
    async with make_sandbox() as second:
        assert await attack(second, "found = os.listdir('/workspace')") == []


@pytest.mark.parametrize("are_closed", [False, True])
async def test_a_run_that_was_prepared_for_another_sandbox(make_sandbox: MakeSandbox, are_closed: bool) -> None:
    """Everything that stands by is in the workspace of some other sandbox, which is still open or not."""
    look = "found = [os.listdir('/workspace'), open('/proc/self/mountinfo').read().count(' /workspace ')]"
    async with make_sandbox() as own, AsyncExitStack() as others:
        await attack(own, "found = open('/workspace/own', 'w').write('x')")
        for _ in range(STANDBYS):
            other = await others.enter_async_context(make_sandbox())
            await attack(other, "found = open('/workspace/left', 'w').write('x')")
            await anyio.sleep(_TO_STAND_BY_SECONDS)
            other._core.backend.expect()
        if are_closed:
            await others.aclose()
        assert await attack(own, look) == [["own"], 1]


async def test_two_policies_never_share_a_cell(lend_sandbox: LendSandbox) -> None:
    """The UTS namespace is the cell's own; all its runs are in it."""
    code = "found = os.stat('/proc/self/ns/uts').st_ino"
    async with lend_sandbox() as one, lend_sandbox() as same, lend_sandbox(resources={"memory": "96M"}) as other:
        numbers = [await attack(sandbox, code) for sandbox in (one, same, other)]
    assert numbers[0] == numbers[1] != numbers[2]


@pytest.mark.parametrize("kind", ["mnt", "pid", "net", "ipc", "user", "cgroup"])
async def test_two_runs_have_each_their_own_namespace(sandbox: AsyncSandbox, kind: str) -> None:
    code = "found = os.stat(path).st_ino"
    async with lingering_attack(sandbox, code, path=f"/proc/self/ns/{kind}") as first:
        assert await attack(sandbox, code, path=f"/proc/self/ns/{kind}") != first


RANDOMNESS = {
    "random": "import random; found = random.random()",
    "a generator of one's own": "import random; found = random.Random().random()",
    "uuid1": "import uuid; found = str(uuid.uuid1())",
    "the node of uuid1": "import uuid; found = uuid.getnode()",
    "uuid4": "import uuid; found = str(uuid.uuid4())",
    "names of temporary files": "import tempfile; found = tempfile.mktemp()",
    "names of temporary folders": "import tempfile; found = tempfile.mkdtemp()",
    "a shuffle": "import random; found = list(range(100)); random.shuffle(found)",
    "the operating system": "found = os.urandom(16).hex()",
    "the multiprocessing key": "import multiprocessing; found = multiprocessing.current_process().authkey.hex()",
}


@pytest.mark.every_parameter
@pytest.mark.parametrize("code", RANDOMNESS.values(), ids=RANDOMNESS)
async def test_two_runs_do_not_share(sandbox: AsyncSandbox, code: str) -> None:
    assert await attack(sandbox, code) != await attack(sandbox, code)


@pytest.mark.every_parameter
@pytest.mark.parametrize("code", RANDOMNESS.values(), ids=RANDOMNESS)
async def test_two_runs_at_the_same_time_do_not_share(sandbox: AsyncSandbox, code: str) -> None:
    async with lingering_attack(sandbox, code) as first:
        assert await attack(sandbox, code) != first


async def test_the_source_of_a_run_is_not_in_the_memory_of_the_next(sandbox: AsyncSandbox, canary: str) -> None:
    head, tail = canary[:20].encode(), canary[20:].encode()
    await sandbox.run(f"secret = {canary!r}", args=[canary], env={"SECRET": canary}, stdin=canary)
    for _ in range(2 * STANDBYS):  # those that were already standing by are older than the secret
        await sandbox.run("")
    assert await attack(sandbox, SCAN_MEMORY, head=head, tail=tail) == 0


SIMULTANEOUS = {
    "processes": (
        "libc.prctl(15, b'hood-first', 0, 0, 0); found = 0",
        "found = [n for n in os.listdir('/proc') if n.isdigit() and open(f'/proc/{n}/comm').read() == 'hood-first\\n']",
        [],
    ),
    "TCP ports": (
        "server = socket.create_server(('127.0.0.1', 4711)); found = 0",
        "found = outcome(lambda: socket.create_connection(('127.0.0.1', 4711), 1))",
        "ECONNREFUSED",
    ),
    "abstract sockets": (
        "server = socket.socket(socket.AF_UNIX); server.bind('\\0hood-first'); server.listen(); found = 0",
        "found = outcome(lambda: socket.socket(socket.AF_UNIX).connect('\\0hood-first'))",
        "ECONNREFUSED",
    ),
    "shared memory": (
        "found = call(shmget, 0x686f6f64, 4096, 0o1666)",
        "found = outcome(lambda: call(shmget, 0x686f6f64, 4096, 0))",
        "ENOENT",
    ),
    "files in /dev/shm": (
        "found = open('/dev/shm/left', 'w').write('x')",
        "found = os.listdir('/dev/shm')",
        [],
    ),
    "terminals": (
        "import pty; held = pty.openpty(); found = 0",
        "found = [name for name in os.listdir('/dev/pts') if name.isdigit()]",
        [],
    ),
}


@pytest.mark.parametrize(("hold", "look", "nothing"), SIMULTANEOUS.values(), ids=SIMULTANEOUS)
async def test_two_runs_do_not_see_each_others(sandbox: AsyncSandbox, hold: str, look: str, nothing: object) -> None:
    number = number_of("shmget")
    async with lingering_attack(sandbox, hold, shmget=number):
        assert await attack(sandbox, look, shmget=number) == nothing


async def test_a_process_of_another_run_cannot_be_signalled(sandbox: AsyncSandbox) -> None:
    code = """
        child = os.fork()
        if child == 0:
            sys.stdin.read()
            os._exit(0)
        found = child
    """
    async with lingering_attack(sandbox, code) as first:
        assert await attack(sandbox, "found = outcome(lambda: os.kill(victim, 0))", victim=first) == "ESRCH"


@pytest.mark.xfail(reason="all runs of a cell are forks of one interpreter, which has one hash seed", strict=True)
async def test_two_runs_do_not_share_the_seed_of_hashes(sandbox: AsyncSandbox) -> None:
    assert await attack(sandbox, "found = hash('hood')") != await attack(sandbox, "found = hash('hood')")


@pytest.mark.xfail(reason="all runs of a cell are forks of one process, which has one layout", strict=True)
async def test_two_runs_do_not_share_the_layout_of_memory(sandbox: AsyncSandbox) -> None:
    code = "found = [line.split()[0] for line in open('/proc/self/maps') if 'libc' in line]"
    assert await attack(sandbox, code) != await attack(sandbox, code)


@pytest.mark.xfail(reason="locks belong to the host's inode, and everyone who may read it may lock it", strict=True)
async def test_a_lock_on_a_system_file_is_not_seen_by_others(make_sandbox: MakeSandbox) -> None:
    code = "held = open('/usr/bin/env'); found = outcome(lambda: fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB))"
    other = make_sandbox(resources={"memory": "96M"})
    async with make_sandbox() as one, other, lingering_attack(one, code) as first:
        assert first == "GOT None"
        assert await attack(other, code) == "GOT None"


async def test_a_kept_tmp_is_of_one_sandbox_alone(backend: str) -> None:
    policy = Policy(backend=backend)
    async with AsyncSandbox(policy, keep_tmp=True) as one, AsyncSandbox(policy, keep_tmp=True) as other:
        assert (await one.run(argv=["touch", "/tmp/left"])).ok
        found = [(await other.run(argv=["ls", "/tmp"])).stdout]
    async with AsyncSandbox(policy, keep_tmp=True) as later:
        found.append((await later.run(argv=["ls", "/tmp"])).stdout)
    assert found == ["", ""]
