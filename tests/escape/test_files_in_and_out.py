"""Files in and out, while a hostile program works on the same folder: what comes out was inside, and goes nowhere else.

| attack | stopped by | succeeds without it (`ablation.py`) |
|---|---|---|
| swapping what is read for a link | one name at a time, no link followed (`guest/resolution`) | (unit tests: races) |
| reaching the host through the service | the service has the isolation of a run | `minimal-root` |
| pipes and sockets that keep a reader waiting | looking before opening, and never waiting to open | |
| names and links that mean something on the host | checked on the host, written through descriptors | |
| links out of the workspace | the service resolves them itself, and stays inside | `uploads-confined` |
| links out of a kept /tmp | likewise | `kept-tmp-confined` |
| ending the service | process namespace, Landlock scope | `process-namespace, landlock` |
"""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from textwrap import dedent

import pytest
from containers import LendSandbox
from ordinary import own

from escape.conftest import MakeSandbox
from escape.laboratory import lingering_attack, number_of
from fumehood import AsyncSandbox, Policy, SandboxError, UsageError

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

READS, LISTS, DOWNLOADS = 5000, 4500, 500

# Each leaves a child behind that does it until the sandbox ends.
SWAPS = {
    "a file and a link": """
        os.makedirs("out/sub", exist_ok=True)
        open("out/x", "w").write("inside"); open("out/sub/x", "w").write("inside")
        os.symlink(secret, "link")
        swap = lambda: call(renameat2, -100, b"out/x", -100, b"link", 2)
    """,
    "a folder and a link": """
        os.makedirs("out/sub", exist_ok=True)
        open("out/x", "w").write("inside"); open("out/sub/x", "w").write("inside")
        os.symlink(os.path.dirname(secret), "link")
        swap = lambda: call(renameat2, -100, b"out", -100, b"link", 2)
    """,
    "a folder and a link up": """
        os.makedirs("out/sub", exist_ok=True)
        open("out/x", "w").write("inside"); open("out/sub/x", "w").write("inside")
        os.symlink("../../../../../../../../" + os.path.dirname(secret), "link")
        swap = lambda: call(renameat2, -100, b"out/sub", -100, b"link", 2)
    """,
    "a file and a pipe": """
        os.makedirs("out/sub", exist_ok=True)
        open("out/x", "w").write("inside"); open("out/sub/x", "w").write("inside")
        os.mkfifo("pipe")
        swap = lambda: call(renameat2, -100, b"out/x", -100, b"pipe", 2)
    """,
    "a link to the service's own files": """
        os.makedirs("out/sub", exist_ok=True)
        open("out/x", "w").write("inside"); open("out/sub/x", "w").write("inside")
        os.symlink("/proc/self/environ", "link")
        swap = lambda: call(renameat2, -100, b"out/x", -100, b"link", 2)
    """,
    "moving a folder about": """
        os.makedirs("out/sub", exist_ok=True)
        os.makedirs("deep/er", exist_ok=True)
        open("out/x", "w").write("inside"); open("out/sub/x", "w").write("inside")
        os.symlink("../../../../" + secret, "out/sub/up")
        swap = lambda: (os.rename("out/sub", "deep/er/sub"), os.rename("deep/er/sub", "out/sub"))
    """,
}
FOR_EVER = """
    if os.fork() == 0:
        while True:
            outcome(swap)
    found = "at work"
"""


@pytest.fixture
async def box(lend_sandbox: LendSandbox) -> AsyncIterator[AsyncSandbox]:
    async with lend_sandbox(filesystem={"outputs": ["**"]}, resources={"timeout": 280}) as sandbox:
        yield sandbox


@pytest.fixture
def downloads(host_folder: Path) -> Path:
    (host_folder / "downloads").mkdir()
    return host_folder / "downloads"


def known(host_secret: Path) -> dict[str, object]:
    return {"secret": str(host_secret), "renameat2": number_of("renameat2")}


@pytest.mark.parametrize("swap", SWAPS.values(), ids=SWAPS.keys())
async def test_nothing_but_the_inside_comes_out_during(
    box: AsyncSandbox, host_secret: Path, downloads: Path, swap: str, tries: Callable[[int], Iterator[int]]
) -> None:
    async with lingering_attack(box, dedent(swap) + dedent(FOR_EVER), **known(host_secret)) as found:
        assert found == "at work"
        contents, names = set[bytes](), set[str]()
        for number in tries(READS):
            with suppress(UsageError):
                contents.add(await box.files.read(("out/x", "out/sub/x", "out/sub/up")[number % 3]))
        for number in tries(LISTS):
            with suppress(UsageError):
                names |= {entry.name for entry in await box.files.list(("out", "out/sub")[number % 2])}
        for number in tries(DOWNLOADS):
            with suppress(UsageError):
                await box.files.download("out", downloads / str(number))
    assert contents <= {b"inside"}
    assert names <= {"x", "sub", "up"}
    for folder, _, files in os.walk(downloads):
        assert {Path(folder, name).read_bytes() for name in files} <= {b"inside"}


WRITES = {
    "a link to a folder of the host": "os.symlink(os.path.dirname(secret), 'in')",
    "a link up": "os.symlink('../' * 20 + os.path.dirname(secret), 'in')",
    "a link to a read-only place": "os.symlink('/usr', 'in')",
}


@pytest.mark.parametrize("plant", WRITES.values(), ids=WRITES.keys())
async def test_an_upload_goes_nowhere_else(box: AsyncSandbox, host_secret: Path, canary: str, plant: str) -> None:
    async with lingering_attack(box, f"{plant}\nfound = True", secret=str(host_secret)):
        with pytest.raises(UsageError, match="leads out of the workspace"):
            await box.files.write("in/secret.txt", b"overwritten")
        with pytest.raises(UsageError, match="leads out of the workspace"):
            await box.files.mkdir("in/made")
        with pytest.raises(UsageError, match="leads out of the workspace"):
            await box.files.remove("in/secret.txt")
    assert host_secret.read_text() == canary
    assert os.listdir(host_secret.parent) == ["secret.txt"]


async def test_a_link_in_a_kept_tmp_does_not_bring_out_what_no_output_names(backend: str, host_folder: Path) -> None:
    """A program may read the mount, but only what the policy names may leave as a file."""
    (host_folder / "shown").mkdir()
    (host_folder / "shown" / "secret").write_text("not an output")
    own(host_folder / "shown")
    mounts = [{"source": str(host_folder / "shown"), "target": "/data"}]
    policy = Policy(backend=backend, filesystem={"mounts": mounts, "outputs": ["/tmp/**"]})
    async with AsyncSandbox(policy, keep_tmp=True) as box:
        assert (await box.run(argv=["ln", "-s", "/data/secret", "/data", "/tmp"])).ok
        for path in ("/tmp/secret", "/tmp/data/secret"):
            with pytest.raises(UsageError, match="leads out"):
                print("GOT", await box.files.read(path))


async def test_a_secret_of_the_host_has_no_path_in_the_sandbox(box: AsyncSandbox, host_secret: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        await box.files.stat(str(host_secret))
    with pytest.raises(UsageError, match="does not exist"):
        await box.files.list(str(host_secret.parent))


async def test_the_service_cannot_be_seen_traced_or_stopped(box: AsyncSandbox) -> None:
    """It is a process beside the run's; from inside the run there is no such process."""
    await box.files.write("x", b"")
    code = """
        found = [outcome(lambda: os.kill(-1, 9)), sorted(name for name in os.listdir("/proc") if name.isdigit())]
    """
    async with lingering_attack(box, code) as found:
        assert len(found[1]) <= 2
        try:
            answer = await box.files.read("x")
        except SandboxError:
            answer = b"the service is gone"
        assert answer == b""


async def test_a_tree_made_to_exhaust_comes_out_bounded(make_sandbox: MakeSandbox, downloads: Path) -> None:
    code = """
        os.mkdir("out"); os.chdir("out")
        for _ in range(3000):
            os.mkdir("d" * 200); os.chdir("d" * 200)
        os.chdir("/workspace/out")
        with open("holes", "wb") as stream:
            stream.truncate(60 * 2 ** 20)
        for number in range(200):
            os.link("holes", f"name {number}")
        found = True
    """
    limits = {"timeout": 280, "disk": "80M"}
    async with (
        make_sandbox(filesystem={"outputs": ["**"]}, resources=limits) as box,
        lingering_attack(box, code),
    ):
        with pytest.raises(Exception, match="more than the 80M that the workspace can hold"):
            await box.files.download("out", downloads / "copy")
        assert os.listdir(downloads) == []
        await box.files.remove("out", recursive=True)
        assert await box.files.list() == []
    shutil.rmtree(downloads)
