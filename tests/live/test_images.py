"""Images: really built on an engine, opened and run, listed, pinned, interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import engine
import pytest
from live.loaded_hood import run_hood
from live.package_index import make_wheel, open_index
from live.traces import descendants, is_alive, wait_until
from requirements import require
from unit.images.archives import file, link, write_archive

from fumehood import DeniedError, FumehoodError, Policy, Sandbox, UnenforceableError, UsageError
from fumehood.images import Recipe, build_image, inspect_image, list_images, remove_image
from fumehood.sandbox.async_sandbox import sandboxed_installer

GREETER = make_wheel("greeter", {"greeter.py": "def main():\n    print('hello')\n"}, version="1.5")
NAME = "fumehood-test-image:1"
LOOK = """
import os, shutil, stat
for folder, _, names in os.walk('/'):
    if folder.startswith(('/proc', '/sys')):
        continue
    for name in names:
        path = os.path.join(folder, name)
        details = os.lstat(path)
        if stat.S_ISREG(details.st_mode) and details.st_mode & 0o6000:
            print('set-uid', path)
        if stat.S_ISREG(details.st_mode) and 'security.capability' in os.listxattr(path):
            print('capable', path)
for command in 'apt apt-get dpkg pip pip3 npm curl wget nc ssh gcc cc as ld make'.split():
    if shutil.which(command, path='/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'):
        print('has', command)
try:
    import pip
    print('pip')
except ImportError:
    pass
print(os.getuid(), os.environ['USER'])
"""


@pytest.fixture(scope="module", autouse=True)
def place() -> Iterator[Path]:
    require(engine.missing() is None, engine.missing() or "")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", engine.use())
        patch.setenv("NO_PROXY", "127.0.0.1")
        yield engine.folder()


@pytest.fixture(scope="module")
def policy(place: Path) -> Iterator[Policy]:
    """Of a real image with a package in it, made from the tests' own, which has compilers."""
    with open_index(GREETER) as index:
        wanted = Policy(backend="docker", image=NAME, environment={"packages": ["greeter==1.*"], "index": index.url})
        build_image(Recipe.of(wanted, base=engine.IMAGE), sandboxed_installer())
        yield wanted
    # Not by its own means: the pool may hold a container of it for a while.
    engine.docker(place, "image", "rm", "--force", NAME)


@pytest.fixture(scope="module")
def tiny(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An image that somebody else made, with as little as can be built on; nothing in it can run."""
    status = b"Package: libc6\nStatus: install ok installed\nArchitecture: amd64\nVersion: 2.36-9\n"
    entries = [link("usr/bin/python3", "python3.11"), file("usr/bin/python3.11"), file("var/lib/dpkg/status", status)]
    archive = write_archive(tmp_path_factory.mktemp("tiny") / "root.tar", *entries)
    done = engine.docker(place, "import", str(archive), "fumehood-test-tiny:1")
    assert done.returncode == 0, done.stderr
    yield "fumehood-test-tiny:1"
    engine.docker(place, "image", "rm", "--force", "fumehood-test-tiny:1")


def on(backend: str, policy: Policy, **changes: object) -> Policy:
    return policy.override({"backend": backend, "resources": {"timeout": "60s"}, **changes})


@pytest.mark.parametrize("backend", engine.BACKENDS)
def test_an_image_has_nothing_that_could_be_used_against_others(policy: Policy, backend: str) -> None:
    with Sandbox(on(backend, policy)) as box:
        assert box.run(LOOK).stdout == "1000 sandbox\n"


@pytest.mark.parametrize("backend", engine.BACKENDS)
def test_an_image_has_the_packages_of_its_policy(policy: Policy, backend: str) -> None:
    with Sandbox(on(backend, policy)) as box:
        assert "the image" in box.enforcement["environment.packages"]
        result = box.run("import greeter; greeter.main(); print(greeter.__file__)")
        assert result.stdout == "hello\n/opt/environment/greeter.py\n"
        assert box.run(argv=["greeter-tool"]).stdout == "hello\n"
        assert box.run(argv=["python3", "-c", "import greeter; greeter.main()"]).stdout == "hello\n"
        assert box.run("open('/opt/environment/greeter.py', 'a')").exit_code == 1


def test_packages_that_an_image_was_not_made_with_are_not_taken_from_it(policy: Policy) -> None:
    other = policy.override({"environment": {"packages": ["greeter<9"]}})
    with Sandbox(other) as box:
        assert "read-only mount" in box.enforcement["environment.packages"]


def test_the_tests_own_image_was_made_by_the_same_builder(place: Path) -> None:
    assert engine.IMAGE in [image.reference for image in list_images(Policy())]
    listed = inspect_image(Policy(), engine.IMAGE)
    assert {"python3", "gcc", "libc6", "tzdata"} <= {name for name, _ in listed.components("deb")}
    assert {"apt", "dpkg", "curl"}.isdisjoint(name for name, _ in listed.components("deb"))
    with Sandbox(Policy(backend="docker")) as box:
        assert box.run("int main(void) { return 3; }", language="c").exit_code == 3


def test_an_inspection_says_what_is_inside_and_where_it_comes_from(policy: Policy, place: Path, tmp_path: Path) -> None:
    written = tmp_path / "policy.yaml"
    written.write_text(f"image: {NAME}\n")
    text = hood("image", "inspect", "--policy", str(written)).stdout
    found = inspect_image(policy, NAME)
    facts = ["from         " + engine.IMAGE, "user         1000:1000", found.facts.digest, policy.digest, "greeter 1.5"]
    assert [fact for fact in facts if fact not in text] == []
    bill = json.loads(hood("image", "inspect", "--json", NAME).stdout)
    assert (bill["bomFormat"], bill["metadata"]["component"]["version"]) == ("CycloneDX", found.facts.digest)
    assert "pkg:pypi/greeter@1.5" in [component["purl"] for component in bill["components"]]
    assert any(component["purl"].startswith("pkg:deb/debian/libc6@2.") for component in bill["components"])
    # Compilers are gone from the record as well: it says what is there.
    assert "gcc-12" not in [component["name"] for component in bill["components"]]


def test_an_image_that_was_made_elsewhere_can_be_inspected_and_is_not_ours_to_remove(tiny: str) -> None:
    assert inspect_image(Policy(), tiny).components("deb") == [("libc6", "2.36-9")]
    with pytest.raises(UsageError, match="was not made by"):
        remove_image(Policy(), tiny)


@pytest.mark.parametrize("backend", engine.BACKENDS)
def test_a_result_says_which_image_it_ran_in_and_a_pin_holds(policy: Policy, backend: str) -> None:
    digest = inspect_image(policy, NAME).facts.digest
    with Sandbox(on(backend, policy, image=f"{NAME}@{digest}")) as box:
        result = box.run("print(1)")
    assert (result.stdout, result.image_digest) == ("1\n", digest)
    assert result.to_dict()["image_digest"] == digest


def test_an_image_that_is_not_the_pinned_one_is_refused(policy: Policy) -> None:
    pinned = policy.override({"image": f"{NAME}@sha256:{'0' * 64}"})
    with pytest.raises(DeniedError, match=r"is sha256:.*the policy pins sha256:000"), Sandbox(pinned):
        pytest.fail("it opened")


def test_the_same_again_is_the_same_image(tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1750000000")
    recipe = Recipe.of(Policy(), name="fumehood-test-twin:1", base=tiny)
    twins = {build_image(recipe, sandboxed_installer()).digest for _ in range(2)}
    remove_image(Policy(), recipe.name)
    assert len(twins) == 1


def test_an_image_for_another_machine_is_refused(tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fumehood.images.archive._ARCHITECTURES", {"x86_64": "arm64", "aarch64": "amd64"})
    build_image(Recipe.of(Policy(), name="fumehood-test-foreign:1", base=tiny), sandboxed_installer())
    try:
        foreign = Policy(backend="docker", image="fumehood-test-foreign:1")
        with (
            pytest.raises(UnenforceableError, match=r"is for aarch64 and the engine.*is on x86_64"),
            Sandbox(foreign),
        ):
            pytest.fail("it opened")
    finally:
        remove_image(Policy(), "fumehood-test-foreign:1")


WRONG = {
    "no such base": ({"base": "no-such-base:1"}, "'no-such-base:1' is not on the engine .* leave --base away"),
    "no such language": (
        {"base": "fumehood-test-tiny:1", "languages": ("java",)},
        "language java: .* no javac and no java",
    ),
}


@pytest.mark.parametrize(("wish", "message"), WRONG.values(), ids=WRONG.keys())
def test_what_cannot_be_built_is_one_clear_error(tiny: str, wish: dict[str, object], message: str) -> None:
    with pytest.raises(FumehoodError, match=message):
        build_image(Recipe.of(Policy(), name="fumehood-test-never:1", **wish), sandboxed_installer())  # type: ignore[arg-type]
    assert workshops() == []


def test_a_base_without_python_is_refused(place: Path, tmp_path: Path) -> None:
    subprocess.run(["tar", "-C", tmp_path, "-cf", tmp_path / "empty.tar", "--files-from=/dev/null"], check=True)
    engine.docker(place, "import", str(tmp_path / "empty.tar"), "fumehood-test-empty:1")
    try:
        with pytest.raises(UsageError, match="has no python3"):
            build_image(
                Recipe.of(Policy(), name="fumehood-test-never:1", base="fumehood-test-empty:1"), sandboxed_installer()
            )
    finally:
        engine.docker(place, "image", "rm", "fumehood-test-empty:1")


def test_without_mmdebstrap_there_is_another_way(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UsageError, match=r"apt-get install mmdebstrap.*--base"):
        build_image(Recipe.of(Policy(), name="fumehood-test-never:1"), sandboxed_installer())


@pytest.mark.parametrize("uid", [65534, 54321], ids=["an account", "no account"])
def test_a_user_without_a_range_of_ids_is_told_how_to_get_one(place: Path, tmp_path: Path, uid: int) -> None:
    program = (
        "import os, sys\nfrom pathlib import Path\nfrom fumehood import Policy, UsageError\n"
        "from fumehood.images import Recipe, build_dir, debian\n"
        "place, recipe = build_dir.BuildDir(Path(sys.argv[1]), 2), Recipe.of(Policy())\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(int(sys.argv[2]))\n"
        "try:\n    debian.make_root(recipe, 'x86_64', place, made_at=0, progress=print, heartbeat=lambda: None)\n"
        "except UsageError as error:\n    print(error)\n"
    )
    command = [sys.executable, "-c", program, tmp_path, str(uid)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert "this user cannot" in done.stdout, done.stderr
    assert "apt-get install uidmap" in done.stdout
    assert "--base" in done.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_build_that_is_stopped_leaves_nothing(place: Path, tmp_path: Path, number: signal.Signals) -> None:
    with building(tmp_path) as build:
        tree = descendants(build.pid)
        build.send_signal(number)
        assert build.wait(60) == 128 + number
    assert workshops(tmp_path) == []
    assert not any(map(is_alive, tree))
    assert str(tmp_path) not in Path("/proc/mounts").read_text()


def test_a_build_that_is_killed_leaves_nothing_that_the_next_does_not_clear_up(place: Path, tmp_path: Path) -> None:
    with building(tmp_path) as build:
        tree = descendants(build.pid)
        build.kill()
        build.wait()
    wait_until(lambda: not any(map(is_alive, tree)), 10, "nothing of the build lives on")
    assert str(tmp_path) not in Path("/proc/mounts").read_text()
    assert len(workshops(tmp_path)) == 1
    assert "1 builds" in hood("gc", home=tmp_path).stdout
    assert workshops(tmp_path) == []


@contextmanager
def building(home: Path) -> Iterator[subprocess.Popen[str]]:
    """A build from Debian packages that has just begun to fetch them."""
    command = [sys.executable, "-m", "fumehood", "image", "build", "--name", "fumehood-test-never:1"]
    variables = {**os.environ, "FUMEHOOD_HOME": str(home / "hood")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=variables) as process:
        try:
            assert process.stderr is not None
            assert "running apt-get update" in process.stderr.readline()
            yield process
        finally:
            process.kill()


def workshops(home: Path | None = None) -> list[Path]:
    folder = home / "hood" if home else engine.folder().parent
    return list((folder / "images").glob("building-*"))


def hood(*arguments: str, home: Path | None = None) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, **({"FUMEHOOD_HOME": str(home / "hood")} if home else {})}
    return run_hood(*arguments, env=variables)
