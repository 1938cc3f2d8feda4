"""Files: reading and changing what belongs to the host.

| attack | stopped by | succeeds without it (`ablation.py`) |
|---|---|---|
| reading host paths, in whatever spelling | minimal root: nothing of the host is mounted | `minimal-root` |
| what lies beside the interpreter | its folder alone is mounted | `interpreter-alone` |
| the folders of process 1 | it is another user's, and sees no more | `real-root, minimal-root` |
| the host's packages | empty folder over site-packages | `hidden-packages` |
| changing the sandbox's root | foreign owner (not rootless), read-only root, Landlock | `read-only-root, landlock` |
| changing /usr and the interpreter | foreign owner, read-only mounts, Landlock | `real-root` |
| touching devices | read-only device mounts | `read-only-mounts` |
| set-uid programs, device files | nosuid and nodev mounts | `harmless-mounts` |
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import anyio
import pytest

import fumehood
from escape.laboratory import attack
from fumehood import AsyncSandbox

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).resolve().parents[2]
PREFIX = Path(sys.base_prefix).resolve()

SPELLINGS = {
    "by its absolute path": "{path}",
    "through a long way up": "../../../../../../../..{path}",
    "up from the workspace": "/workspace/..{path}",
    "through the root of the own process": "/proc/self/root{path}",
    "through the root of a thread": "/proc/thread-self/root{path}",
    "up from the current folder": "/proc/self/cwd/../..{path}",
    "with doubled slashes": "//{path}",
}


@pytest.mark.parametrize("spelling", SPELLINGS.values(), ids=SPELLINGS)
async def test_a_host_file_cannot_be_read(sandbox: AsyncSandbox, host_secret: Path, spelling: str) -> None:
    path = spelling.format(path=host_secret)
    assert await attack(sandbox, "found = outcome(lambda: open(path).read())", path=path) == "ENOENT"


INDIRECTIONS = {
    "a symbolic link": "os.symlink(path, 'way'); found = outcome(lambda: open('way').read())",
    "a link to the root": "os.symlink('/proc/self/root', 'way'); found = outcome(lambda: open('way' + path).read())",
    "a hard link": "found = outcome(lambda: os.link(path, 'way'))",
    "a descriptor of the root folder": """
        root = os.open("/", os.O_PATH)
        found = outcome(lambda: open(os.open("../.." + path, os.O_RDONLY, dir_fd=root)).read())
    """,
    "standard input as a folder": "found = outcome(lambda: open('/proc/self/fd/0/..' + path).read())",
    "the folder of standard input": "found = outcome(lambda: os.open('..' + path, os.O_RDONLY, dir_fd=0))",
    "running it": "found = outcome(lambda: os.execv(path, [path]))",
    "loading it as a library": """
        try:
            found = f"GOT {ctypes.CDLL(path)}"
        except OSError as error:
            found = "ENOENT" if "No such file" in str(error) else f"GOT {error}"
    """,
}


@pytest.mark.parametrize("code", INDIRECTIONS.values(), ids=INDIRECTIONS)
async def test_a_host_file_cannot_be_had_through(sandbox: AsyncSandbox, host_secret: Path, code: str) -> None:
    assert await attack(sandbox, code, path=str(host_secret)) in ("ENOENT", "ENOTDIR")


@pytest.mark.parametrize("name", ["root", "cwd"])
async def test_process_1_lends_nobody_its_folders(sandbox: AsyncSandbox, host_secret: Path, name: str) -> None:
    code = "found = outcome(lambda: open(way + path).read())"
    assert await attack(sandbox, code, way=f"/proc/1/{name}", path=str(host_secret)) in ("EACCES", "ENOENT")


PLACES = [
    *(
        "/etc/shadow",
        "/etc/gshadow",
        "/etc/sudoers",
        "/etc/machine-id",
        "/etc/hostname",
        "/etc/ssh",
        "/etc/ssl/private",
    ),
    *("/home/root", "/srv", "/opt", "/mnt", "/media", "/boot", "/var/lib", "/var/log", "/var/run", "/sys"),
    *("/root/.ssh", "/root/.bashrc", "/dev/mem", "/dev/kmsg", "/dev/vda", "/dev/sda", "/dev/kvm", "/dev/fuse"),
    *("/dev/net/tun", "/dev/userfaultfd", "/dev/mqueue"),
]


@pytest.mark.parametrize("place", PLACES)
async def test_a_place_of_the_host_is_not_there(sandbox: AsyncSandbox, place: str) -> None:
    assert await attack(sandbox, "found = outcome(lambda: os.stat(place))", place=place) == "ENOENT"


async def test_fumehood_and_its_repository_are_not_there(sandbox: AsyncSandbox) -> None:
    paths = [str(ROOT / "pyproject.toml"), str(ROOT / ".git"), str(fumehood.__file__), str(anyio.__file__)]
    code = "found = [outcome(lambda: os.stat(path)) for path in paths]"
    assert await attack(sandbox, code, paths=paths) == ["ENOENT"] * len(paths)


async def test_the_hosts_packages_are_hidden(sandbox: AsyncSandbox) -> None:
    code = """
        import sysconfig
        places = {sysconfig.get_path(kind) for kind in ("purelib", "platlib")}
        found = [os.path.join(*each) for place in places for each in (
            (name, *sorted(os.listdir(f"{place}/{name}"))) for name in os.listdir(place))]
    """
    # A pip of ours, which starts the sandbox's own installer.
    assert set(await attack(sandbox, code)) <= {"pip/__init__.py/__main__.py"}


async def test_the_root_holds_nothing_but_the_system(sandbox: AsyncSandbox) -> None:
    system = {"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"}
    own = {"etc", "dev", "proc", "run", "tmp", "var", "workspace", "home"}
    interpreter = {PREFIX.parts[1]}
    assert set(await attack(sandbox, "found = os.listdir('/')")) <= system | own | interpreter
    code = (
        "found = [os.path.realpath(f'/home/{name}') for name in os.listdir('/home')] if os.path.isdir('/home') else []"
    )
    homes = await attack(sandbox, code)
    assert set(homes) <= {"/workspace", *(str(PREFIX.parents[-3]) for _ in "x" if PREFIX.is_relative_to("/home"))}


async def test_the_way_to_the_interpreter_has_no_side_doors(sandbox: AsyncSandbox) -> None:
    ways = [] if PREFIX.is_relative_to("/usr") else PREFIX.parents[:-1]
    found = await attack(sandbox, "found = [os.listdir(way) for way in ways]", ways=[str(way) for way in ways])
    assert found == [[step.name] for step in (PREFIX, *ways)[:-1]]


async def test_the_hosts_accounts_are_not_listed(sandbox: AsyncSandbox) -> None:
    found = await attack(sandbox, "import pwd; found = [entry.pw_name for entry in pwd.getpwall()]")
    assert set(found) == {"root", "sandbox", "nobody"}


WRITES = {
    "a new file in /": "outcome(lambda: os.open('/evil', os.O_CREAT | os.O_WRONLY))",
    "a new file in /etc": "outcome(lambda: os.open('/etc/evil', os.O_CREAT | os.O_WRONLY))",
    "a new file in /dev": "outcome(lambda: os.open('/dev/evil', os.O_CREAT | os.O_WRONLY))",
    "a new file in /var/empty": "outcome(lambda: os.open('/var/empty/evil', os.O_CREAT | os.O_WRONLY))",
    "the accounts": "outcome(lambda: os.open('/etc/passwd', os.O_WRONLY))",
    "the name service": "outcome(lambda: os.truncate('/etc/hosts', 0))",
    "the accounts' mode": "outcome(lambda: os.chmod('/etc/passwd', 0o666))",
    "the accounts' time": "outcome(lambda: os.utime('/etc/passwd'))",
    "the accounts' name": "outcome(lambda: os.rename('/etc/passwd', '/etc/evil'))",
    "the accounts' existence": "outcome(lambda: os.unlink('/etc/passwd'))",
    "the root folder's mode": "outcome(lambda: os.chmod('/', 0o777))",
    "a folder in the root": "outcome(lambda: os.mkdir('/evil'))",
    "a link in the root": "outcome(lambda: os.symlink('/workspace', '/evil'))",
    "a hidden proc folder": "outcome(lambda: os.open('/proc/fs/evil', os.O_CREAT | os.O_WRONLY))",
}


@pytest.mark.parametrize("code", WRITES.values(), ids=WRITES)
async def test_the_root_cannot_be_changed(sandbox: AsyncSandbox, code: str) -> None:
    assert await attack(sandbox, f"found = {code}") in ("EROFS", "EACCES")


SYSTEM_FILES = ["/usr/bin/env", "/usr/bin/sh", "/etc/ld.so.cache", "/usr/lib/os-release"]


@pytest.mark.parametrize("path", SYSTEM_FILES)
async def test_a_system_file_of_the_host_cannot_be_changed(sandbox: AsyncSandbox, path: str) -> None:
    """Opening is the whole attack: nothing is written, in case it works."""
    found = await attack(sandbox, "found = outcome(lambda: os.open(path, os.O_WRONLY))", path=path)
    assert found in ("EROFS", "EACCES")


@pytest.mark.parametrize("folder", ["/usr", "/usr/bin", "/usr/local/bin", "/etc/alternatives"])
async def test_nothing_can_be_added_to_a_system_folder_of_the_host(sandbox: AsyncSandbox, folder: str) -> None:
    code = """
        def ask():
            if libc.access(folder.encode(), os.W_OK) < 0:
                raise OSError(ctypes.get_errno(), "")

        found = outcome(ask)
    """
    assert await attack(sandbox, code, folder=folder) in ("EROFS", "EACCES")


async def test_the_interpreter_cannot_be_changed(sandbox: AsyncSandbox) -> None:
    found = await attack(sandbox, "found = outcome(lambda: os.open(os.__file__, os.O_WRONLY))")
    assert found in ("EROFS", "EACCES")


@pytest.mark.parametrize("device", ["null", "zero", "full", "random", "urandom", "tty"])
async def test_a_device_of_the_host_cannot_be_touched(sandbox: AsyncSandbox, device: str) -> None:
    """The node is the host's own: a time that one sandbox can set and all others can read is a way to talk."""
    found = await attack(sandbox, "found = outcome(lambda: os.utime(path))", path=f"/dev/{device}")
    assert found in ("EROFS", "EACCES", "EPERM")


async def test_no_mount_honours_set_uid_and_only_device_nodes_are_devices(sandbox: AsyncSandbox) -> None:
    code = """
        found = []
        for line in open("/proc/self/mountinfo"):
            fields = line.split()
            place, options = fields[4], fields[5].split(",")
            is_device = stat.S_ISCHR(os.stat(place).st_mode) or place == "/dev/pts"
            if "nosuid" not in options or ("nodev" not in options and not is_device):
                found.append(line)
    """
    assert await attack(sandbox, code) == []


async def test_a_socket_of_the_host_has_no_path_inside(sandbox: AsyncSandbox, host_folder: Path) -> None:
    path = str(host_folder / "agent.sock")
    with socket.socket(socket.AF_UNIX) as agent:
        agent.bind(path)
        agent.listen()
        found = await attack(sandbox, "found = outcome(lambda: socket.socket(socket.AF_UNIX).connect(path))", path=path)
    assert found == "ENOENT"
