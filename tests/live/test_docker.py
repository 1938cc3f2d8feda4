"""Containers and what can happen to them: their owner dies, they are killed, the engine is elsewhere, or not there."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import anyio
import engine
import pytest
from live.relays import relay_to
from live.traces import containers, has_process, wait_for_removal
from requirements import require

from fumehood import AsyncSandbox, Cause, FumehoodError, Policy, Sandbox, Status, UnenforceableError, UsageError
from fumehood.backends.docker import profile
from fumehood.backends.docker.gc import remove_ownerless
from fumehood.backends.docker.labels import OWNER, TENANT, container_labels
from fumehood.errors import StepFailedError
from fumehood.host.processes import is_gone
from fumehood.policy import Docker
from fumehood.tenant import Tenant

OWNER_OF_TEN = """
import sys, threading
from fumehood import Policy, Sandbox
boxes = [Sandbox(Policy(backend="docker", resources={"memory": "77M"})) for _ in range(10)]
threads = [threading.Thread(target=box.__enter__) for box in boxes]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print("open", flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module", autouse=True)
def place() -> Iterator[Path]:
    require(engine.missing() is None, engine.missing() or "")
    before = os.environ.get("DOCKER_HOST")
    os.environ["DOCKER_HOST"] = engine.use()
    yield engine.folder()
    if before is None:
        del os.environ["DOCKER_HOST"]


@pytest.mark.serial
def test_nothing_is_left_of_a_host_that_was_killed_with_ten_containers(place: Path) -> None:
    digest = Policy(backend="docker", resources={"memory": "77M"}).digest
    command = [sys.executable, "-c", OWNER_OF_TEN]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        assert host.stdout.readline() == "open\n"
        # And perhaps one that stands by.
        assert len(containers(place, f"fumehood.policy={digest}")) >= 10
        host.kill()
    wait_for_removal(place, digest, seconds=5)


SILENT_OWNER = """
import os, signal
from fumehood import Policy, Sandbox
from fumehood.backends.docker import configuration
configuration.PATIENCE_SECONDS = 6.0
with Sandbox(Policy(backend="docker", resources={"memory": "76M"})) as box:
    print(box.run("print('open')").stdout, end="", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
"""


def test_a_guest_that_is_left_alone_ends_although_nobody_hung_up(place: Path) -> None:
    """As with an engine that was killed, or one behind a network that is gone."""
    digest = Policy(backend="docker", resources={"memory": "76M"}).digest
    with subprocess.Popen([sys.executable, "-c", SILENT_OWNER], stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        assert host.stdout.readline() == "open\n"
        assert containers(place, f"fumehood.policy={digest}")
        try:
            wait_for_removal(place, digest, seconds=60)
        finally:
            host.kill()


@pytest.mark.anyio
async def test_a_container_that_is_killed_from_outside_is_lost_and_says_so(place: Path) -> None:
    # With outputs, for which nobody can be asked any more.
    policy = Policy(backend="docker", resources={"memory": "78M"}, filesystem={"outputs": ["out/**"]})
    async with AsyncSandbox(policy) as box:
        run = await box.start("print('here', flush=True)\nimport signal\nsignal.pause()")
        async for _ in run.stream():
            break
        (container,) = containers(place, f"fumehood.policy={policy.digest}")
        engine.docker(place, "kill", container)
        result = await run.wait()
        assert (result.status, result.cause) == (Status.ERROR, Cause.LOST)
        with pytest.raises(FumehoodError, match="open a new one"):
            await box.run("pass")
    wait_for_removal(place, policy.digest)


@pytest.mark.anyio
async def test_an_opening_that_is_cancelled_leaves_no_container(place: Path) -> None:
    """At any moment, also while the engine is making one: such a container would never remove itself."""
    # Each its own: of a policy that is used again there would be a spare one.
    policies = [Policy(backend="docker", resources={"memory": f"{50 + number}M"}) for number in range(12)]
    for number, policy in enumerate(policies):
        with anyio.move_on_after(0.02 * number):
            async with AsyncSandbox(policy):
                pass
    for policy in policies:
        wait_for_removal(place, policy.digest)


def test_a_container_that_runs_out_of_memory_as_a_whole_says_so(place: Path) -> None:
    """On gVisor the kernel of the host knows one process: the sandbox."""
    hoard = (
        "import os, signal\nfor _ in range(4):\n    if os.fork() == 0:\n        x = b'x' * (90 * 2**20)\n"
        "        signal.pause()\nsignal.pause()"
    )
    with Sandbox(Policy(backend="gvisor", resources={"memory": "100M", "timeout": "60s"})) as box:
        result = box.run(hoard)
    assert (result.status, result.cause) == (Status.RESOURCE_EXCEEDED, Cause.MEMORY)


def test_a_closed_sandbox_leaves_no_container(place: Path) -> None:
    policy = Policy(backend="docker", resources={"memory": "79M"})
    with Sandbox(policy) as box:
        assert box.run("print(1)").ok
        assert len(containers(place, f"fumehood.policy={policy.digest}")) == 1
    wait_for_removal(place, policy.digest)


def test_a_sandbox_is_closed_when_nothing_of_its_programs_is_left(place: Path) -> None:
    """The container may still be there; what ran in it is not, however it was left."""
    mark = secrets.token_hex(8)
    with Sandbox(Policy(backend="docker", resources={"memory": "75M"})) as box:
        running = box.start(argv=["sh", "-c", f"setsid sh -c 'sleep 600; : {mark}' & echo up; sleep 600; : {mark}"])
        next(iter(running.stream()))
        assert has_process(mark)
    assert not has_process(mark)


def test_containers_of_a_dead_owner_are_collected_and_others_are_left(place: Path) -> None:
    dead = container_labels("x")[OWNER].rpartition(" ")[0] + " 1"
    assert is_gone(dead)
    made = [
        engine.docker(place, "create", "--label", f"{OWNER}={owner}", engine.IMAGE, "true").stdout.strip()
        for owner in (dead, container_labels("x")[OWNER])
    ]
    try:
        # Others may be at work on the same engine.
        remove_ownerless()
        left = containers(place, OWNER)
        assert [any(name.startswith(short) for short in left) for name in made] == [False, True]
    finally:
        engine.docker(place, "rm", "--force", made[1])


def test_containers_of_an_owner_in_another_process_namespace_are_left(place: Path) -> None:
    """As seen from there its number is another process's, or nobody's."""
    owner = container_labels("x")[OWNER]
    made = engine.docker(place, "create", "--label", f"{OWNER}={owner}", engine.IMAGE, "true").stdout.strip()
    elsewhere = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-m", "fumehood", "gc"]
    try:
        subprocess.run(elsewhere, check=True, env={**os.environ, "DOCKER_HOST": engine.address(place)})
        assert any(made.startswith(short) for short in containers(place, OWNER))
    finally:
        engine.docker(place, "rm", "--force", made)


@pytest.mark.anyio
async def test_a_tenant_has_its_own_containers_on_its_own_engine_alone(place: Path, tmp_path: Path) -> None:
    policy, own = Policy(backend="docker", resources={"memory": "73M"}), Docker(host=engine.address(place))
    without = Tenant("acme", tmp_path / "acme")
    with pytest.raises(UnenforceableError, match="tenant acme has no container engine"):
        async with AsyncSandbox(policy, tenant=without):
            pass
    with pytest.raises(UnenforceableError, match="memory and cpu of tenant acme"):
        async with AsyncSandbox(policy, tenant=Tenant("acme", tmp_path / "acme", docker=own, memory_bytes=2**30)):
            pass
    acme, bolt = (Tenant(name, tmp_path / name, docker=own) for name in ("acme", f"bolt-{secrets.token_hex(4)}"))
    for _ in range(2):  # the second leaves one that stands by
        async with AsyncSandbox(policy, tenant=acme) as box:
            assert (await box.run("print(1)")).stdout == "1\n"
    async with AsyncSandbox(policy, tenant=bolt):
        assert len(containers(place, f"{TENANT}={bolt.name}")) == 1


def test_an_engine_is_reached_over_tcp(place: Path) -> None:
    """By way of a relay: what counts is that nothing but the address is local."""
    with (
        relay_to(place / "engine.sock") as port,
        Sandbox(Policy(backend="docker", docker={"host": f"tcp://127.0.0.1:{port}"})) as box,
    ):
        assert box.run("print(6 * 7)").stdout == "42\n"
        box.files.write("file", b"x" * 300_000)
        assert box.run("import os; print(os.stat('file').st_size)").stdout == "300000\n"


WRONG = {
    "no engine": ({"host": "unix:///nowhere/docker.sock"}, "no Docker engine answers at unix:///nowhere/docker.sock"),
    "no image of ours": (
        {"image": "fumehood:none"},
        "image 'fumehood:none' is not on .*Make it with `hood image build`",
    ),
    "no image": (
        {"image": "no-such-image:1"},
        "image 'no-such-image:1' is not on the engine .*`hood image build --name no-such-image:1`",
    ),
}


@pytest.mark.parametrize(("section", "message"), WRONG.values(), ids=WRONG.keys())
def test_what_is_wrong_with_an_engine_is_one_clear_error(section: dict[str, str], message: str) -> None:
    with pytest.raises(FumehoodError, match=message), Sandbox(Policy(backend="docker", docker=section)):
        pytest.fail("it opened")


def test_a_runtime_that_is_missing_is_refused_with_what_is_there() -> None:
    policy = Policy(backend="docker", docker={"runtime": "kata"})
    with pytest.raises(UnenforceableError, match=r"no runtime 'kata'.*runsc"), Sandbox(policy):
        pytest.fail("it opened")


class _OldEngine(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b'{"ApiVersion": "1.24", "Version": "1.12"}'
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_an_engine_that_is_too_old_is_told_apart() -> None:
    with HTTPServer(("127.0.0.1", 0), _OldEngine) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        policy = Policy(backend="docker", docker={"host": f"tcp://127.0.0.1:{server.server_port}"})
        with pytest.raises(FumehoodError, match=r"speaks API 1\.24.*Docker 20\.10"), Sandbox(policy):
            pytest.fail("it opened")
        server.shutdown()


def test_a_sandbox_that_comes_from_the_pool_is_as_new(place: Path) -> None:
    policy = Policy(backend="docker", resources={"memory": "81M"})
    for _ in range(3):
        with Sandbox(policy) as box:
            assert box.run("import os; print(os.listdir()); open('x', 'w')").stdout == "[]\n"


def test_parallel_opens_do_not_wait_for_each_other(place: Path) -> None:
    async def open_all() -> list[str]:
        said: list[str] = []

        async def one() -> None:
            async with AsyncSandbox(Policy(backend="docker", resources={"memory": "82M"})) as box:
                said.append((await box.run("print('here')")).stdout)

        async with anyio.create_task_group() as tasks:
            for _ in range(6):
                tasks.start_soon(one)
        return said

    assert anyio.run(open_all) == ["here\n"] * 6


def test_the_engines_profile_leaves_one_rule_to_the_guests_own_filter() -> None:
    assert profile.unsaid() == ["ioctl"]


def test_a_signal_to_the_guest_does_nothing(place: Path) -> None:
    with Sandbox(Policy(backend="docker")) as box:
        kill = (
            "import os, signal\nfor n in sorted(int(n) for n in os.listdir('/proc') if n.isdigit()):\n"
            "    if n != os.getpid():\n        try: os.kill(n, signal.SIGKILL); print('reached', n)\n"
            "        except OSError: pass\nprint('on')"
        )
        assert box.run(kill).stdout.splitlines()[-1] == "on"
        assert box.run("print('on')").stdout == "on\n"


@pytest.mark.parametrize("runtime", ["runc", engine.IMPOSTORS[0]])
def test_a_runtime_that_is_not_gvisor_is_not_taken_for_it(runtime: str) -> None:
    with pytest.raises(UnenforceableError, match="is not gVisor"):
        Sandbox(Policy(backend="gvisor", docker={"runtime": runtime})).__enter__()
    with Sandbox(Policy(backend="docker", docker={"runtime": runtime})) as box:
        assert "gVisor" not in str(box.enforcement)


@pytest.mark.parametrize("backend", engine.BACKENDS)
def test_a_program_that_is_called_like_gvisors_has_to_be_gvisor(backend: str) -> None:
    with pytest.raises(StepFailedError, match="is not gVisor"):
        Sandbox(Policy(backend=backend, docker={"runtime": engine.IMPOSTORS[1]})).__enter__()


@pytest.fixture
def name_user(place: Path) -> Iterator[Callable[[str], str]]:
    """An image like the usual one, with this as its user."""
    made: list[str] = []

    def make(user: str) -> str:
        name = f"hood-user-{secrets.token_hex(4)}"
        container = engine.docker(place, "create", engine.IMAGE, "never").stdout.strip()
        done = engine.docker(place, "commit", "--change", f'USER "{user}"', container, name)
        engine.docker(place, "rm", container)
        assert done.returncode == 0, done.stderr
        made.append(name)
        return name

    yield make
    engine.docker(place, "image", "rm", *made)


@pytest.mark.parametrize("backend", engine.BACKENDS)
def test_an_image_whose_user_is_root_by_another_name_is_refused(name_user: Callable[[str], str], backend: str) -> None:
    for user in ("00", "+0", "00:1000", "unknown"):
        with pytest.raises(UsageError, match="neither a number above 0 nor the name"):
            Sandbox(Policy(backend=backend, image=name_user(user))).__enter__()


@pytest.mark.parametrize("backend", engine.BACKENDS)
def test_a_user_that_has_a_name_in_the_image_is_who_programs_run_as(
    name_user: Callable[[str], str], backend: str
) -> None:
    with Sandbox(Policy(backend=backend, image=name_user("games"))) as box:
        box.files.write("file", b"x")
        assert box.run("import os; os.stat('file'); print(os.getuid(), os.getgid())").stdout == "5 60\n"
    with Sandbox(Policy(backend=backend, image=name_user("0:0"))) as box:
        assert box.run("import os; print(os.getuid(), os.getgid())").stdout == "65534 65534\n"
