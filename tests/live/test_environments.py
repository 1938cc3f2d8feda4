"""Packages of a policy: really installed, once, whole or not at all, and read-only in the sandbox."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import anyio
import pytest
from live.cli_host import hood
from live.package_index import PackageIndex, make_wheel, open_index
from live.traces import descendants, is_alive, wait_until
from requirements import require

import fumehood
from fumehood import AsyncSandbox, DeniedError, FumehoodError, Policy, Sandbox, UsageError, run
from fumehood.environments import EnvironmentStore
from fumehood.tenant import Tenant

ANALYST = Path(__file__).resolve().parents[2] / "examples" / "analyst" / "policy.yaml"
GREETER = make_wheel("greeter", {"greeter.py": "def main():\n    print('hello')\n\nmain.__module__\n"})
HOST = """
import sys, fumehood
box = fumehood.Sandbox(fumehood.Policy.load(sys.argv[1]), progress=lambda line: print(line, flush=True))
with box:
    print(box.run("import greeter; greeter.main()").stdout, end="")
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FUMEHOOD_HOME", str(tmp_path / "hood"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return tmp_path / "hood" / "environments"


def policy_for(index: PackageIndex, *packages: str, **section: object) -> Policy:
    return Policy(environment={"packages": [*packages], "index": index.url, **section})


def write_policy(folder: Path, index: PackageIndex) -> Path:
    file = folder / "policy.yaml"
    file.write_text(f"environment: {{packages: [greeter], index: '{index.url}'}}\n")
    return file


def installers_of(process: int) -> set[int]:
    """Descendants that are, or are about to become, the installer."""
    return {pid for pid in descendants(process) if b"pip\0install" in _command_of(pid)}


def _command_of(process: int) -> bytes:
    """Nothing, if it has ended meanwhile."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{process}/cmdline").read_bytes()
    return b""


def test_packages_are_there_for_the_program_and_for_what_it_starts() -> None:
    with open_index(GREETER) as index, Sandbox(policy_for(index, "greeter")) as box:
        assert box.run("import greeter; greeter.main(); print(greeter.__file__)").stdout == (
            "hello\n/opt/environment/greeter.py\n"
        )
        assert (
            box.run("python3 -c 'import greeter; greeter.main()'; greeter-tool", language="sh").stdout == "hello\n" * 2
        )
        assert box.run("import sys; print(sys.path[-2], 'greeter' in sys.modules)").stdout == "/opt/environment False\n"
        assert "read-only mount of a folder with the digest sha256:" in box.enforcement["environment.packages"]


def test_nothing_in_the_environment_can_be_written_by_the_program() -> None:
    attack = """
import os
def attempt(act):
    try:
        act()
    except OSError as error:
        print(error.strerror)
attempt(lambda: open('/opt/environment/greeter.py', 'a'))
attempt(lambda: open('/opt/environment/new.py', 'w'))
attempt(lambda: os.remove('/opt/environment/greeter.py'))
attempt(lambda: os.rename('/opt/environment/greeter.py', '/opt/environment/x.py'))
attempt(lambda: os.chmod('/opt/environment', 0o777))
attempt(lambda: os.utime('/opt/environment/greeter.py'))
"""
    with open_index(GREETER) as index, Sandbox(policy_for(index, "greeter")) as box:
        answers = box.run(attack).stdout.splitlines()
        assert len(answers) == 6
        assert set(answers) <= {"Read-only file system", "Permission denied"}


def test_a_second_sandbox_needs_no_index() -> None:
    with open_index(GREETER) as index:
        policy = policy_for(index, "greeter")
        with Sandbox(policy):
            pass
        asked = len(index.paths)
        assert asked
        with Sandbox(policy) as box:
            assert box.run("import greeter").ok
        assert len(index.paths) == asked


def test_preloaded_packages_are_loaded_before_the_program_starts() -> None:
    with open_index(GREETER) as index:
        policy = policy_for(index, "greeter", preload=["greeter"])
        assert run("import sys; print('greeter' in sys.modules)", policy).stdout == "True\n"


def test_a_package_cannot_take_the_place_of_a_module_that_the_cell_imports() -> None:
    impostor = make_wheel("impostor", {"json.py": "print('impostor')", "ctypes.py": "raise SystemExit"})
    with open_index(impostor) as index:
        assert run("import json; print(json.dumps([1]))", policy_for(index, "impostor")).stdout == "[1]\n"


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("greter", "greter cannot be imported: ModuleNotFoundError"),
        ("broken", "broken cannot be imported: ZeroDivision"),
    ],
)
def test_a_module_that_cannot_be_preloaded_is_named(module: str, words: str) -> None:
    broken = make_wheel("broken", {"broken/__init__.py": "1 / 0\n"})
    with open_index(GREETER, broken) as index:
        policy = policy_for(index, "greeter", "broken", preload=[module])
        with pytest.raises(FumehoodError, match=f"{words}.*environment.preload"), Sandbox(policy):
            pytest.fail("it opened")


def test_progress_is_told() -> None:
    told: list[str] = []
    with open_index(GREETER) as index, Sandbox(policy_for(index, "greeter"), progress=told.append):
        assert told[0] == "installing greeter"
        assert any(line.startswith("Installed 1 package") for line in told)


def test_two_processes_build_once_and_the_second_says_that_it_waits(tmp_path: Path) -> None:
    with open_index(GREETER, answering=False) as index:
        command = [sys.executable, "-W", "ignore", "-c", HOST, str(write_policy(tmp_path, index))]
        with (
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as first,
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as second,
        ):
            assert first.stdout is not None
            assert second.stdout is not None
            try:
                lines = {first.stdout.readline(), second.stdout.readline()}
                builder, waiter = (first, second) if _reads(first, second) else (second, first)
                assert lines == {
                    "installing greeter\n",
                    f"waiting for process {builder.pid}, which works on the same environment\n",
                }
            finally:
                index.answering.set()  # nobody waits any longer, also when something was not as expected
            assert builder.communicate()[0].endswith("hello\n")
            assert waiter.communicate()[0] == "hello\n"


def _reads(first: subprocess.Popen[str], second: subprocess.Popen[str]) -> bool:
    """True when the first one is the builder: exactly one of them has an installer, as soon as its sandbox is up."""

    def building() -> list[bool]:
        return [bool(installers_of(process.pid)) for process in (first, second)]

    wait_until(lambda: any(building()), 20.0, "an installer runs")
    assert sorted(building()) == [False, True]
    return building()[0]


def test_many_threads_build_once() -> None:
    results, told = list[str](), list[str]()

    def open_and_run() -> None:
        with Sandbox(policy, progress=told.append) as box:
            results.append(box.run("import greeter; greeter.main()").stdout)

    with open_index(GREETER) as index:
        policy = policy_for(index, "greeter")
        threads = [threading.Thread(target=open_and_run) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == ["hello\n"] * 6
    assert told.count("installing greeter") == 1


def test_a_build_that_is_killed_takes_its_installer_along_and_the_next_one_sweeps_up(
    home: Path, tmp_path: Path
) -> None:
    with open_index(GREETER, answering=False) as index:
        policy = write_policy(tmp_path, index)
        with subprocess.Popen([sys.executable, "-c", HOST, str(policy)], stdout=subprocess.DEVNULL) as host:
            assert index.asked.wait(20)
            installers = installers_of(host.pid)
            assert installers
            host.kill()
        wait_until(lambda: not any(map(is_alive, installers)), 5.0, "the installer is gone with its host")
        (leftover,) = home.glob(".building-*")
        assert EnvironmentStore(home).list() == []
        index.answering.set()
        assert run("import greeter; greeter.main()", Policy.load(policy)).stdout == "hello\n"
        assert not leftover.exists()
        assert len(EnvironmentStore(home).list()) == 1


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)])
def test_an_interrupted_command_leaves_nothing_usable(home: Path, tmp_path: Path, signum: int, code: int) -> None:
    with open_index(GREETER, answering=False) as index:
        command = [sys.executable, "-m", "fumehood", "env", "build", "--policy", str(write_policy(tmp_path, index))]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as hood:
            assert index.asked.wait(20)
            installers = installers_of(hood.pid)
            hood.send_signal(signum)
            assert hood.wait(20) == code
        wait_until(lambda: not any(map(is_alive, installers)), 5.0, "the installer is gone")
    store = EnvironmentStore(home)
    assert store.list() == []
    assert (signum == signal.SIGINT) == (list(home.iterdir()) == [])
    store.sweep()
    assert list(home.iterdir()) == []


@pytest.mark.anyio
async def test_opening_a_sandbox_can_be_cancelled_while_it_builds(home: Path) -> None:
    with open_index(GREETER, answering=False) as index:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_cancel_when, index.asked, scope)
                async with AsyncSandbox(policy_for(index, "greeter")):
                    pytest.fail("it opened")
        assert scope.cancelled_caught
        assert installers_of(os.getpid()) == set()
    assert not any(name.startswith(".building-") for name in os.listdir(home))


async def _cancel_when(event: threading.Event, scope: anyio.CancelScope) -> None:
    assert await anyio.to_thread.run_sync(event.wait, 20)
    scope.cancel()


def test_a_package_without_wheels_is_denied(home: Path) -> None:
    with open_index(("source-1.0.tar.gz", b"never read")) as index:
        with pytest.raises(DeniedError, match=r"source.*no usable wheels.*Only wheels are installed"):
            run("pass", policy_for(index, "source"))
        assert index.downloads() == []
    assert EnvironmentStore(home).list() == []
    assert list(home.iterdir()) == []


@pytest.mark.parametrize(
    ("package", "words"),
    [
        ("gretter", "gretter was not found in the package registry"),
        ("greeter==9", "there is no version of greeter==9"),
        ("greeter>2,<1", "incompatible"),
        ("greeter; platform > 3", "found `platform`"),
    ],
)
def test_a_package_that_does_not_exist_is_named(home: Path, package: str, words: str) -> None:
    with open_index(GREETER) as index, pytest.raises(UsageError, match=words):
        run("pass", policy_for(index, package))
    assert list(home.iterdir()) == []


def test_hashes_are_held(tmp_path: Path) -> None:
    with open_index(GREETER) as index:
        file = tmp_path / "requirements.txt"
        file.write_text(f"greeter==1.0 --hash={index.hash_of(GREETER[0])}\n")
        policy = policy_for(index, requirements=file)
        assert run("import greeter; greeter.main()", policy).stdout == "hello\n"
        file.write_text(f"greeter==1.0 --hash=sha256:{'0' * 64}\n")
        with pytest.raises(DeniedError, match=r"Hash mismatch for `greeter==1.0`"):
            run("pass", policy)


def test_with_hashes_a_dependency_needs_one_too(tmp_path: Path) -> None:
    needy = make_wheel("needy", {"needy/__init__.py": ""}, requires="greeter")
    with open_index(GREETER, needy) as index:
        file = tmp_path / "requirements.txt"
        file.write_text(f"needy==1.0 --hash={index.hash_of(needy[0])}\n")
        with pytest.raises(UsageError, match="must list every package, dependencies included"):
            run("pass", policy_for(index, requirements=file))


def test_a_policys_index_is_the_only_one(monkeypatch: pytest.MonkeyPatch) -> None:
    impostor = make_wheel("greeter", {"greeter.py": "def main():\n    print('impostor')\n"}, version="2.0")
    with open_index(GREETER) as index, open_index(impostor) as other:
        for variable in ("UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_DEFAULT_INDEX", "UV_FIND_LINKS"):
            monkeypatch.setenv(variable, other.url)
        assert run("import greeter; greeter.main()", policy_for(index, "greeter")).stdout == "hello\n"
        assert other.paths == []


def test_an_index_that_nobody_serves_is_a_clear_error(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}/simple"
    with pytest.raises(FumehoodError, match=r"Failed to fetch.*Check that this machine reaches its index"):
        run("pass", Policy(environment={"packages": ["greeter"], "index": address}))
    assert list(home.iterdir()) == []


def test_an_environment_that_was_pruned_and_built_anew_works_although_an_old_cell_is_warm(home: Path) -> None:
    with open_index(GREETER) as index:
        policy = policy_for(index, "greeter")
        with Sandbox(policy) as box:
            assert box.run("pass").ok
            assert EnvironmentStore(home).prune() == []
        assert len(EnvironmentStore(home).prune()) == 1
        assert run("import greeter; greeter.main()", policy).stdout == "hello\n"


def test_the_same_packages_have_the_same_digest_whenever_they_are_built(home: Path) -> None:
    digests: list[str] = []
    with open_index(GREETER) as index:
        for _ in range(2):
            with Sandbox(policy_for(index, "greeter")) as box:
                digests.append(box.enforcement["environment.packages"])
            EnvironmentStore(home).prune()
    assert digests[0] == digests[1]


def test_a_mount_over_the_packages_is_refused(tmp_path: Path) -> None:
    mounts = {"mounts": [{"source": str(tmp_path), "target": "/opt"}]}
    with open_index(GREETER) as index:
        policy = policy_for(index, "greeter").override({"filesystem": mounts})
        with pytest.raises(UsageError, match="'/opt' would cover the packages"):
            run("pass", policy)


def test_a_policy_that_cannot_be_enforced_is_refused_before_anything_is_built(home: Path) -> None:
    with open_index(GREETER) as index:
        with pytest.raises(DeniedError, match="image"):
            run("pass", policy_for(index, "greeter").override({"backend": "native", "image": "debian:13"}))
        assert index.paths == []
    assert not home.exists()


def test_hood_env_builds_lists_and_prunes(home: Path, tmp_path: Path) -> None:
    def env(*arguments: str) -> tuple[int, str]:
        done = hood("env", *arguments)
        return done.returncode, done.stdout.decode()

    with open_index(GREETER) as index:
        policy = str(write_policy(tmp_path, index))
        assert env("list") == (0, "no environments; `hood env build PACKAGE` or a sandbox that needs one makes it\n")
        code, built = env("build", "--policy", policy)
        assert (code, "greeter (1 installed" in built) == (0, True)
        assert env("list") == (0, built)
        assert env("prune") == (0, "nothing to remove\n")
        assert env("prune", "--all")[1].startswith("removed ")
        assert list(home.iterdir()) == []
        assert env("build")[0] == 2
        assert env("build", "--policy", policy, "six")[0] == 2


@pytest.mark.parametrize("package", ["iniconfig", "six", "packaging"])
def test_wheels_of_the_machines_own_index_work(package: str, reaches_index: Callable[[], bool]) -> None:
    require(reaches_index(), "no package index is configured or reachable")
    assert run(f"import {package}; print({package}.__name__)", Policy(environment={"packages": [package]})).ok


def test_pandas_is_loaded_once_and_its_randomness_is_new_in_every_run(
    reaches_index: Callable[[], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    require(reaches_index(), "no package index is configured or reachable")
    monkeypatch.delenv("FUMEHOOD_HOME")  # where tests of the example have installed it already, or will find it
    with Sandbox(Policy(environment=Policy.load(ANALYST).environment)) as box:
        assert box.run("import pandas as pd; print(pd.DataFrame({'a': [1, 2]}).a.sum())").stdout == "3\n"
        program = "import numpy as np; print(np.random.random(), np.random.default_rng().random())"
        assert len({number for _ in range(4) for number in box.run(program).stdout.split()}) == 8


@pytest.fixture
def reaches_index() -> Callable[[], bool]:
    def ask() -> bool:
        target = Path(os.environ["FUMEHOOD_HOME"]) / "probe"
        uv = shutil.which("uv", path=f"{sys.prefix}/bin:{os.environ['PATH']}")
        command = [uv or "uv", "pip", "install", "-q", "--python", sys.executable, "--target", str(target), "six"]
        return uv is not None and subprocess.run(command, stderr=subprocess.DEVNULL).returncode == 0

    return ask


@pytest.mark.anyio
async def test_each_tenant_installs_for_itself(home: Path, tmp_path: Path) -> None:
    """What another one has installed is neither used nor seen by the time that it takes."""
    with open_index(GREETER) as index:
        for name in ("acme", "bolt"):
            tenant = Tenant(name, tmp_path / name, variables={"UV_DEFAULT_INDEX": index.url, "NO_PROXY": "127.0.0.1"})
            lines: list[str] = []
            policy = Policy(environment={"packages": ["greeter"]})
            async with AsyncSandbox(policy, progress=lines.append, tenant=tenant) as box:
                assert (await box.run("import greeter; greeter.main()")).stdout == "hello\n"
            assert "installing greeter" in lines
            assert len(EnvironmentStore.open_for(tenant).list()) == 1
    assert not home.exists()


def test_a_python_of_the_system_has_the_same_pip_as_any_other() -> None:
    system = Path("/usr/bin/python3")
    require(Path("/usr/lib/python3/dist-packages/pip").exists(), "needs python3-pip")
    require(os.path.realpath(system).endswith(f"python3.{sys.version_info[1]}"), "needs the same release of Python")
    code = "import fumehood; print(fumehood.run('python3 -m pip install six; python3 -m pip list', language='sh'))"
    path = os.pathsep.join(map(str, (Path(fumehood.__file__).parents[1], sysconfig.get_path("purelib"))))
    ran = subprocess.run(
        [system, "-c", code], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True
    )
    assert "in network.allow of its policy" in ran.stdout
    assert "externally-managed" not in ran.stdout
    assert "status=<Status.SUCCESS" in ran.stdout  # of what needs no network
