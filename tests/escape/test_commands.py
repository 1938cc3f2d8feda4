"""Programs that the policy does not name, where the kernel is to keep everybody from executing them.

| attack | stopped by | succeeds without it (`ablation.py`) |
|---|---|---|
| executing a program by any path, link or descriptor | Landlock: only named files | `named-executables` |
| the loader as a program, with another as its argument | unnamed programs cannot be read | `named-executables` |
| executing what was written: copies, scripts, mounts | Landlock, noexec mounts | `written-files-not-executed` |
| the loader with a written program | noexec mounts | `written-files-not-executed` |
| executing a file that is nowhere but in memory | no memfd_create | `no-code-from-memory` |
| orders that no reader of lines sees: git's configuration, a Makefile | Landlock, by default | `named-executables` |
"""

from __future__ import annotations

import textwrap
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from containers import LendSandbox

from escape.conftest import MakeSandbox
from escape.laboratory import attack
from fumehood import AsyncSandbox

pytestmark = pytest.mark.anyio

COMMANDS = {"allow": ["cat", "bash", "sh"], "enforce": "kernel"}
RUN = """
def run(*words, **more):
    import subprocess
    done = subprocess.run(words, capture_output=True, text=True, **more)
    return done.stdout

def is_machine_code(path):
    try:
        with open(path, "rb") as stream:
            return stream.read(4) == b"\\x7fELF"
    except OSError:
        return False

loader = os.path.realpath("/lib64/ld-linux-x86-64.so.2")
if not os.path.exists(loader):
    loader = os.path.realpath("/lib/ld-linux-aarch64.so.1")
"""


@pytest.fixture
async def guarded(lend_sandbox: LendSandbox) -> AsyncIterator[AsyncSandbox]:
    async with lend_sandbox(commands=COMMANDS) as opened:
        yield opened


def program(code: str) -> str:
    return RUN + "\n" + code


UNNAMED = {
    "by its name": 'found = outcome(lambda: run("id"))',
    "by its path": 'found = outcome(lambda: run("/usr/bin/id"))',
    "through a symbolic link": 'os.symlink("/usr/bin/id", "cat"); found = outcome(lambda: run("./cat"))',
    "through the root of the own process": 'found = outcome(lambda: run("/proc/self/root/usr/bin/id"))',
    "by a descriptor": """
        descriptor = os.open("/usr/bin/id", os.O_PATH)
        found = outcome(lambda: run(f"/proc/self/fd/{descriptor}", pass_fds=[descriptor]))
    """,
    "with execveat": """
        descriptor = os.open("/usr/bin/id", os.O_PATH)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.execve(descriptor, ["id"], {})
            except OSError as error:
                os.write(write, errno.errorcode[error.errno].encode())
            os._exit(0)
        os.close(write)
        os.waitpid(child, 0)
        found = os.read(read, 100).decode() or "GOT it executed"
    """,
    "the interpreter itself": 'found = outcome(lambda: run("/proc/self/exe", "-c", "print(1)"))',
    "the interpreter by its path": 'found = outcome(lambda: run(sys.executable, "-c", "print(1)"))',
    "by a copy": """
        import shutil
        found = outcome(lambda: shutil.copy("/usr/bin/id", "id"))
    """,
}


@pytest.mark.parametrize("code", UNNAMED.values(), ids=UNNAMED)
async def test_an_unnamed_program_cannot_be_executed(guarded: AsyncSandbox, code: str) -> None:
    assert await attack(guarded, program(textwrap.dedent(code))) == "EACCES"


async def test_a_shell_that_is_named_starts_nothing_that_is_not(guarded: AsyncSandbox) -> None:
    code = program('found = run("bash", "-c", "id; /usr/bin/id; exec /usr/bin/id; command -p id")')
    assert await attack(guarded, code) == ""


LOADED = {
    "an unnamed program": 'found = run(loader, "/usr/bin/id")',
    "an unnamed program with its libraries named": 'found = run(loader, "--library-path", "/usr/lib", "/usr/bin/id")',
    "from a shell": 'found = run("bash", "-c", f"exec {loader} /usr/bin/id")',
    "one whose folder lies deeper": """
import glob
deeper = [path for top in ("/usr/local/*", "/opt") for path in glob.glob(f"{top}/**/bin/*", recursive=True)]
found = "".join(run(loader, "--verify", path) or path for path in deeper if is_machine_code(path))
""",
}


@pytest.mark.parametrize("code", LOADED.values(), ids=LOADED)
async def test_the_loader_cannot_be_made_to_run(guarded: AsyncSandbox, code: str) -> None:
    assert await attack(guarded, program(code)) == ""


@pytest.mark.parametrize("folder", ["/workspace", "/tmp", "/dev/shm", "/run"])
@pytest.mark.parametrize("way", ["executed", "loaded"])
async def test_what_was_written_is_not_code(guarded: AsyncSandbox, folder: str, way: str) -> None:
    """A copy of a program that may be executed where it lies."""
    code = program("""
import shutil
shutil.copy("/bin/cat", path)
os.chmod(path, 0o755)
words = [path, "/etc/group"] if way == "executed" else [loader, path, "/etc/group"]
try:
    found = run(*words)[:4]
except OSError:
    found = ""
""")
    assert await attack(guarded, code, path=f"{folder}/copy", way=way) == ""


async def test_a_script_that_was_written_cannot_be_executed(guarded: AsyncSandbox) -> None:
    code = program("""
with open("script", "w") as stream:
    stream.write("#!/bin/bash\\necho GOT it\\n")
os.chmod("script", 0o755)
found = outcome(lambda: run("/workspace/script"))
""")
    assert await attack(guarded, code) == "EACCES"


async def test_a_program_in_a_mount_cannot_be_executed(make_sandbox: MakeSandbox, host_folder: Path) -> None:
    tool = host_folder / "tool"
    tool.write_text("#!/bin/bash\necho GOT it\n")
    tool.chmod(0o755)
    mount = {"source": str(host_folder), "target": "/data"}
    async with make_sandbox(commands=COMMANDS, filesystem={"mounts": [mount]}) as box:
        assert await attack(box, program('found = outcome(lambda: run("/data/tool"))')) == "EACCES"


# Lines that the command policy allows, and what a program does before, so that they start `id`.
UNSEEN = {
    "git's configuration": (
        "git init -q . && git status",
        """run("git", "init", "-q", "."); open(".git/config", "a").write('[core]\\nfsmonitor = "id > got; true"\\n')""",
    ),
    "a Makefile": ("make", 'open("Makefile", "w").write("all:\\n\\tid > got\\n")'),
    "a script of awk's": ("ls", """run("awk", 'BEGIN{system("id > got")}')"""),
    "a value that is evaluated": ("ls", """run("bash", "-c", "x='a[$(id > got)]'; echo $((x))")"""),
    "a hook of git's": (
        "git init -q . && git -c user.name=x -c user.email=x commit --allow-empty -qm x",
        """
run("git", "init", "-q", ".")
os.makedirs(".git/hooks", exist_ok=True)
open(".git/hooks/pre-commit", "w").write("#!/bin/sh\\nid > got\\n")
os.chmod(".git/hooks/pre-commit", 0o755)
""",
    ),
}


@pytest.mark.parametrize("backend", ["native"], indirect=True)  # the image of the others has neither git nor make
@pytest.mark.parametrize(("line", "orders"), UNSEEN.values(), ids=UNSEEN)
async def test_what_an_allowed_program_is_told_to_start_is_not_executed(
    make_sandbox: MakeSandbox, line: str, orders: str
) -> None:
    """The policy says nothing about the kernel: this is how it is where nobody thought of it."""
    allow = ["ls", "awk", "make", "git init", "git status", "git commit"]
    async with make_sandbox(commands={"allow": allow}) as box:
        await attack(box, program(f"{orders}\nfound = 1"))
        result = await box.run(line, language="bash")
        assert result.status != "denied", result.detail
        assert await attack(box, 'found = os.path.exists("got") and os.path.getsize("got")') in (False, 0)


async def test_a_file_in_memory_cannot_be_executed(guarded: AsyncSandbox) -> None:
    code = program("""
def from_memory():
    descriptor = os.memfd_create("x", 0)
    with open("/bin/cat", "rb") as stream:
        os.write(descriptor, stream.read())
    return run(f"/proc/self/fd/{descriptor}", "/etc/group", pass_fds=[descriptor])

found = outcome(from_memory)
""")
    assert await attack(guarded, code) == "ENOSYS"
