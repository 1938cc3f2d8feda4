"""Images without Python: commands and shells run as everywhere, on an interpreter that is lent to the guest alone."""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import engine
import pytest
from live.cli_host import hood
from live.relays import relay_to
from live.traces import wait_for_removal
from ordinary import own
from requirements import require
from unit.images.archives import file, link, write_archive

from fumehood import Cause, FumehoodError, Policy, Sandbox, Status, UsageError
from fumehood.backends.docker import DockerBackend
from fumehood.backends.docker.gc import remove_ownerless
from fumehood.backends.docker.interpreter import LABEL, PLACE
from fumehood.backends.selection import select_backend
from fumehood.guest.contract.landlock import landlock_abi

COMMANDS = ("sh", "cat", "echo", "env", "find", "head", "id", "ls", "rm", "sleep", "stty", "tty", "wc", "yes")
BUSYBOX = "/bin/busybox"


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    require(engine.missing() is None, engine.missing() or "")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", engine.use())
        yield engine.folder()


def close_backends() -> None:
    """Containers that wait for a sandbox use the image and the interpreter too."""
    for name in engine.BACKENDS:
        backend = select_backend(Policy(backend=name))
        assert isinstance(backend, DockerBackend)
        backend.close()


@pytest.fixture
def no_spares() -> None:
    close_backends()


@pytest.fixture(scope="module")
def image(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One static file, its names, and nothing else: no Python, no C library, no loader."""
    require(os.path.exists(BUSYBOX), "needs busybox-static")
    program = file("tools/busybox", Path(BUSYBOX).read_bytes())
    links = [link(f"tools/{name}", "busybox") for name in COMMANDS]
    archive = write_archive(tmp_path_factory.mktemp("bare") / "root.tar", program, *links, link("bin", "tools"))
    name = f"fumehood-test-bare:{secrets.token_hex(4)}"
    done = engine.docker(place, "import", "--change", "ENV PATH=/tools", str(archive), name)
    assert done.returncode == 0, done.stderr
    yield name
    close_backends()
    engine.docker(place, "image", "rm", "--force", name)


@pytest.fixture(params=engine.BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def make_policy(backend: str, image: str) -> Callable[..., Policy]:
    def make(**sections: object) -> Policy:
        return Policy(backend=backend, image=image, **sections)

    return make


@pytest.fixture
def box(make_policy: Callable[..., Policy]) -> Iterator[Sandbox]:
    with Sandbox(make_policy(filesystem={"outputs": ["**"]}, resources={"output": "64K"})) as opened:
        yield opened


def volumes(place: Path) -> set[str]:
    done = engine.docker(place, "volume", "ls", "--quiet", "--filter", f"label={LABEL}")
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_commands_and_shells_run_with_the_images_own_programs(box: Sandbox) -> None:
    assert box.run(argv=["echo", "hello"]).stdout == "hello\n"
    assert box.run(argv=["sh", "-c", "exit 7"]).exit_code == 7
    assert box.run("echo $1; exit 3", language="sh", args=["word"]).exit_code == 3
    assert box.run("cat; echo $PATH", language="sh", stdin="typed\n").stdout == "typed\n/tools:/workspace/.local/bin\n"
    assert box.run(argv=["sh", "-c", "echo $A"], env={"A": "b"}).stdout == "b\n"
    missing = box.run(argv=["python3", "-c", "1"])
    assert (missing.exit_code, missing.stderr) == (127, "python3: command not found in the sandbox\n")


def test_limits_hold(box: Sandbox) -> None:
    result = box.run(argv=["sleep", "600"], timeout=1)
    assert (result.status, result.cause) == (Status.TIMEOUT, Cause.WALL_TIME)
    result = box.run(argv=["yes"])
    assert (result.status, result.cause) == (Status.RESOURCE_EXCEEDED, Cause.OUTPUT)
    assert box.run(argv=["id", "-u"]).stdout != "0\n"


@pytest.mark.one_container
def test_files_go_in_and_out(box: Sandbox, tmp_path: Path) -> None:
    box.files.write("in.txt", b"x" * 300_000)
    assert box.run("wc -c < in.txt; echo made > out.txt", language="sh").stdout.strip() == "300000"
    assert box.files.read("out.txt") == b"made\n"
    assert {entry.name for entry in box.files.list()} == {"in.txt", "out.txt"}
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "leaf").write_text("leaf")
    box.files.upload(tmp_path / "tree", "tree")
    box.files.download("tree", tmp_path / "back")
    assert (tmp_path / "back" / "leaf").read_text() == "leaf"


@pytest.mark.one_container
def test_runs_in_the_background_and_in_terminals(box: Sandbox) -> None:
    run = box.start(argv=["cat"])
    run.write("typed\n")
    run.close_stdin()
    assert run.wait().stdout == "typed\n"
    terminal = box.start(argv=["sh", "-c", "tty; stty size"], terminal=(91, 17))
    assert "17 91" in terminal.wait().stdout


@pytest.mark.one_container
def test_python_is_refused_before_anything_starts(box: Sandbox, image: str) -> None:
    words = f"image '{image}' has no python3: Python code cannot run in it.*`hood image build`"
    with pytest.raises(UsageError, match=words):
        box.run("open('made', 'w')")
    with pytest.raises(UsageError, match=words):
        box.start("open('made', 'w')")
    with pytest.raises(UsageError, match=words), box.session() as session:
        session.run("1")
    with pytest.raises(UsageError, match=r"language 'bash' is not available .*; available: sh$"):
        box.run("true", language="bash")
    assert box.files.list() == []


@pytest.mark.one_container
def test_what_is_for_python_is_refused_when_the_sandbox_opens(make_policy: Callable[..., Policy]) -> None:
    with pytest.raises(UsageError, match=r"has no python3: environment.preload"):
        Sandbox(make_policy(environment={"preload": ["json"]})).__enter__()


@pytest.mark.one_container
def test_a_mount_does_not_come_where_the_interpreter_is(make_policy: Callable[..., Policy], tmp_path: Path) -> None:
    own(tmp_path)
    mount = {"source": str(tmp_path), "target": f"{PLACE}/usr"}
    with pytest.raises(UsageError, match=f"mount target '{PLACE}/usr'"):
        Sandbox(make_policy(filesystem={"mounts": [mount]})).__enter__()


READING = f"""
for file in $(find {PLACE}/usr/bin {PLACE}/usr/lib -name 'python3*' 2>/dev/null | head -20); do
    head -c 1 $file >/dev/null 2>&1 && [ -f $file ] && echo GOT $file
done
cat {PLACE}/usr/lib/os-release && echo GOT it
{PLACE}/usr/bin/python3 -c 1 && echo GOT it
{PLACE}/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2 --version && echo GOT it
echo done
"""


def test_programs_cannot_use_the_interpreter(box: Sandbox, backend: str) -> None:
    require(backend == "gvisor" or landlock_abi(), "needs Landlock")
    assert box.run(READING, language="sh").stdout == "done\n"


def test_only_named_programs_run_where_the_kernel_sees_to_that(image: str) -> None:
    commands = {"allow": ["busybox", "echo", "/.fumehood/usr/bin/env"], "enforce": "kernel"}
    with Sandbox(Policy(backend="docker", image=image, commands=commands)) as box:
        assert box.run(argv=["echo", "hello"]).stdout == "hello\n"
        assert box.run(argv=["/.fumehood/usr/bin/env"]).exit_code == 126


@pytest.mark.one_container
def test_two_sandboxes_share_one_interpreter_and_nothing_else(place: Path, make_policy: Callable[..., Policy]) -> None:
    policy = make_policy(filesystem={"outputs": ["**"]})
    with Sandbox(policy) as first:
        before = volumes(place)
        with Sandbox(policy) as second:
            first.files.write("own", b"first")
            assert second.files.list() == []
            assert (first.run(argv=["cat", "own"]).stdout, second.run(argv=["echo", "2"]).stdout) == ("first", "2\n")
            assert before
            assert volumes(place) == before


@pytest.mark.serial
@pytest.mark.usefixtures("no_spares")
def test_an_unused_interpreter_is_collected_and_made_again(place: Path, image: str) -> None:
    remove_ownerless()
    policy = Policy(backend="docker", image=image, resources={"memory": "81M"})
    with Sandbox(policy) as box:
        used = volumes(place)
        assert b"fumehood-python" not in hood("gc").stdout
        assert volumes(place) == used
        assert box.run(argv=["echo", "1"]).ok
    wait_for_removal(place, policy.digest)
    done = hood("gc")
    assert all(f"removed {name}".encode() in done.stdout for name in used)
    assert volumes(place) == set()
    with Sandbox(policy) as box:
        assert box.run(argv=["echo", "1"]).ok
    assert len(volumes(place)) == 2


@pytest.mark.serial
@pytest.mark.usefixtures("no_spares")
def test_those_who_need_it_first_at_the_same_time_get_one(place: Path, image: str) -> None:
    remove_ownerless()
    answers: list[str] = []

    def use(number: int) -> None:
        policy = Policy(backend="docker", image=image, resources={"memory": f"{82 + number}M"})
        with Sandbox(policy) as box:
            answers.append(box.run(argv=["echo", "1"]).stdout)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == ["1\n"] * 3
    assert len(volumes(place)) == 2


@pytest.mark.serial
@pytest.mark.usefixtures("no_spares")
def test_one_that_was_emptied_by_somebody_is_made_again(place: Path, image: str) -> None:
    policy = Policy(backend="docker", image=image, resources={"memory": "86M"})
    with Sandbox(policy):
        (holder,) = (name for name in volumes(place) if name.count("-") == 3)
    wait_for_removal(place, policy.digest)
    engine.docker(place, "volume", "rm", holder)
    engine.docker(place, "volume", "create", "--label", f"{LABEL}=x", holder)
    with Sandbox(policy) as box:
        assert box.run(argv=["echo", "1"]).ok
    wait_for_removal(place, policy.digest)
    remove_ownerless()
    assert holder not in volumes(place)


def test_an_engine_elsewhere_does_it_all_by_itself(place: Path, image: str) -> None:
    """By way of a relay: what counts is that nothing but the address is local."""
    with (
        relay_to(place / "engine.sock") as port,
        Sandbox(Policy(backend="docker", image=image, docker={"host": f"tcp://127.0.0.1:{port}"})) as box,
    ):
        assert box.run(argv=["echo", "1"]).stdout == "1\n"


def test_without_an_image_to_borrow_from_the_error_says_how_to_get_one(image: str) -> None:
    policy = Policy(backend="docker", image=image, docker={"interpreter": "no-such-image:1"})
    words = r"has no python3.*'no-such-image:1'.* is not there.*`hood image build`.*docker\.interpreter"
    with pytest.raises(FumehoodError, match=words), Sandbox(policy):
        pytest.fail("it opened")


def test_an_image_that_has_none_itself_lends_none(place: Path, image: str) -> None:
    other = f"{image}-other"
    engine.docker(place, "tag", image, other)
    try:
        policy = Policy(backend="docker", image=image, docker={"interpreter": other})
        with pytest.raises(FumehoodError, match="is not one that it could take it from"), Sandbox(policy):
            pytest.fail("it opened")
    finally:
        engine.docker(place, "image", "rm", other)


def test_the_command_line_runs_them_too(image: str, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(f"{{version: 1, backend: docker, image: '{image}'}}")
    done = hood("run", "--policy", policy, "--language", "sh", "-c", "echo hello")
    assert (done.returncode, done.stdout) == (0, b"hello\n")
    done = hood("run", "--policy", policy, "-c", "print(1)")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"has no python3" in done.stderr
