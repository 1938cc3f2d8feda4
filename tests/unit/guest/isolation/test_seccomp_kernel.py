"""The filter on a real kernel: what is forbidden fails as promised, and real programs do not notice it."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from fumehood.guest.contract.syscalls.arguments import REFUSE
from fumehood.guest.contract.syscalls.profile import RULES
from fumehood.guest.isolation.seccomp import build_filter, numbers_aarch64, numbers_x86_64

MACHINE = os.uname().machine
NUMBERS = {"x86_64": numbers_x86_64.NUMBERS, "aarch64": numbers_aarch64.NUMBERS}.get(MACHINE, {})

pytestmark = pytest.mark.skipif(not NUMBERS, reason=f"there is no filter for {MACHINE}")

LOADER = """
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
program = ctypes.create_string_buffer(bytes.fromhex(sys.argv[1]))
fprog = struct.pack("@HP", (len(program) - 1) // 8, ctypes.addressof(program))
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, fprog, 0, 0):
    sys.exit(f"the kernel did not take the filter: {os.strerror(ctypes.get_errno())}")
os.execvp(sys.argv[2], sys.argv[2:])
"""

CALLER = """
import ctypes, json, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
errors = []
for number, *values in json.loads(sys.argv[1]):
    ctypes.set_errno(0)
    values = [value.encode() if isinstance(value, str) else ctypes.c_ulong(value) for value in values]
    result = libc.syscall(ctypes.c_long(number), *values)
    errors.append(ctypes.get_errno() if result == -1 else 0)
print(json.dumps(errors))
"""

# mov eax, 20 (getpid on i386); int 0x80; ret
I386_CALL = """
import ctypes, mmap
code = mmap.mmap(-1, 4096, prot=7)
code.write(bytes.fromhex("b814000000cd80c3"))
address = ctypes.addressof(ctypes.c_char.from_buffer(code))
ctypes.CFUNCTYPE(ctypes.c_int)(address)()
"""

PYTHON_AT_WORK = """
import asyncio, concurrent.futures, mmap, multiprocessing, os, socket, sqlite3, subprocess, tempfile, threading, time

async def over_loopback():
    async def echo(reader, writer):
        writer.write(await reader.read(100))
        writer.close()
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"ping")
        writer.write_eof()
        assert await reader.read() == b"ping"
        writer.close()
        await writer.wait_closed()
    child = await asyncio.create_subprocess_exec("echo", "hi", stdout=subprocess.PIPE)
    assert (await child.communicate())[0] == b"hi\\n"

def over_processes(method):
    with concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context(method)) as pool:
        assert list(pool.map(abs, [-1, -2])) == [1, 2]

def on_disk(folder):
    database = sqlite3.connect(folder + "/data.db")
    database.execute("pragma journal_mode=wal")
    database.execute("create table t(x)")
    database.execute("insert into t values (1)")
    database.commit()
    assert database.execute("select x from t").fetchall() == [(1,)]
    database.close()
    os.mkfifo(folder + "/pipe")
    os.chmod(folder + "/data.db", 0o600)
    os.makedirs(folder + "/a/b")
    os.sync()

def main():
    threads = [threading.Thread(target=time.sleep, args=(0,)) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    asyncio.run(over_loopback())
    [over_processes(method) for method in ("fork", "spawn", "forkserver")]
    with multiprocessing.Manager() as manager:
        assert manager.list([1])[0] == 1
    assert subprocess.run(["sort"], input=b"b\\na\\n", capture_output=True, check=True).stdout == b"a\\nb\\n"
    assert subprocess.run("echo $((6*7)) | cat", shell=True, capture_output=True).stdout == b"42\\n"
    with tempfile.TemporaryDirectory() as folder:
        on_disk(folder)
    [end.close() for end in socket.socketpair()]
    assert socket.if_nametoindex('lo')
    os.getrandom(8), os.sched_getaffinity(0), os.memfd_create("x")
    mmap.mmap(-1, 4096).close()
    print("done")

if __name__ == "__main__":
    main()
"""

NODE_AT_WORK = """
const {Worker} = require('worker_threads');
require('child_process').execFileSync('true');
require('fs').promises.readFile('/etc/passwd').then(() =>
    new Worker('process.exit(0)', {eval: true}).on('exit', code => process.exit(code)));
"""


def confined(argv: list[str], cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    loader = [sys.executable, "-I", "-S", "-c", LOADER, build_filter(MACHINE).hex()]
    # In a session of its own: should vhangup get through, it has no terminal to hang up.
    return subprocess.run([*loader, *argv], capture_output=True, text=True, timeout=60, cwd=cwd, start_new_session=True)


def python_argv(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", code, *arguments]


def errors_of(calls: Sequence[Sequence[int | str]]) -> list[int]:
    result = confined(python_argv(CALLER, json.dumps(calls)))
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def error_of(name: str, *values: int | str) -> int:
    return errors_of([[NUMBERS[name], *values]])[0]


def test_every_refused_call_is_refused() -> None:
    names = [name for decision, names in RULES if decision == REFUSE for name in names.split() if name in NUMBERS]
    # All ones are invalid for each of these calls, so that a hole in the filter would do no harm here.
    errors = errors_of([[NUMBERS[name], *[2**64 - 1] * 6] for name in names])
    assert dict(zip(names, errors, strict=True)) == dict.fromkeys(names, errno.EPERM)


@pytest.mark.parametrize("name", ["clone3", "openat2", "fchmodat2", "memfd_secret", "io_setup"])
def test_absent_calls_are_unknown(name: str) -> None:
    assert error_of(name, 0) == errno.ENOSYS


def test_numbers_that_no_kernel_has_are_unknown() -> None:
    assert errors_of([[1000], [2**32 - 1]]) == [errno.ENOSYS] * 2


@pytest.mark.parametrize("flag", [0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000])
def test_clone_makes_no_namespace(flag: int) -> None:
    assert error_of("clone", flag | signal.SIGCHLD, 0, 0, 0, 0) == errno.EPERM


def test_exotic_sockets_do_not_exist() -> None:
    packet, alg, vsock = (17, 3, 0), (38, 5, 0), (40, 1, 0)
    hidden_by_upper_bits = (1 << 32 | 38, 5, 0)
    calls = [(NUMBERS["socket"], *values) for values in (packet, alg, vsock, hidden_by_upper_bits)]
    assert errors_of(calls) == [errno.EAFNOSUPPORT] * 4


def test_internet_sockets_of_rare_protocols_do_not_exist() -> None:
    sctp, packet_by_its_old_name = [NUMBERS["socket"], 2, 1, 132], [NUMBERS["socket"], 2, 10, 0x300]
    assert errors_of([sctp, packet_by_its_old_name]) == [errno.EPROTONOSUPPORT, errno.EPERM]


def test_no_file_gets_a_set_id_bit(tmp_path: Path) -> None:
    here, file = -100 % 2**64, tmp_path / "file"
    file.touch()
    creating = os.O_CREAT | os.O_WRONLY
    calls = [
        [NUMBERS["fchmodat"], here, str(file), 0o4755],
        [NUMBERS["openat"], here, str(tmp_path / "new"), creating, 0o4755],
        [NUMBERS["openat"], here, str(tmp_path), os.O_TMPFILE | os.O_WRONLY, 0o2755],
        [NUMBERS["mkdirat"], here, str(tmp_path / "folder"), 0o2755],
        [NUMBERS["mknodat"], here, str(tmp_path / "node"), 0o104755, 0],
        [NUMBERS["mknodat"], here, str(tmp_path / "device"), 0o020600, 0],
    ]
    assert errors_of(calls) == [errno.EPERM] * len(calls)
    assert list(tmp_path.iterdir()) == [file]
    assert file.stat().st_mode & 0o6000 == 0


def test_openat_of_an_existing_file_ignores_a_stray_mode(tmp_path: Path) -> None:
    assert error_of("openat", -100 % 2**64, str(tmp_path), os.O_RDONLY, 0o6777) == 0


@pytest.mark.parametrize("request_number", [0x5412, 0x541C, 0x541D, 0x5423, 1 << 32 | 0x5412])
def test_terminals_cannot_be_taken_over(request_number: int) -> None:
    assert error_of("ioctl", 0, request_number, 0) == errno.EPERM


def test_address_randomisation_stays_on() -> None:
    assert error_of("personality", 0x0040000) == errno.EPERM


@pytest.mark.skipif(MACHINE != "x86_64", reason="x32 is a variant of x86_64")
def test_an_x32_call_kills_the_process() -> None:
    assert confined(python_argv(CALLER, json.dumps([[0x4000_0000 | NUMBERS["getpid"]]]))).returncode == -signal.SIGSYS


@pytest.mark.skipif(MACHINE != "x86_64", reason="i386 is a variant of x86_64")
def test_an_i386_call_kills_the_process() -> None:
    if subprocess.run(python_argv(I386_CALL)).returncode != 0:
        pytest.skip("this kernel runs no i386 calls")
    assert confined(python_argv(I386_CALL)).returncode == -signal.SIGSYS


def test_python_works_with_threads_processes_sockets_and_databases(tmp_path: Path) -> None:
    script = tmp_path / "work.py"  # a file, since spawned processes import it
    script.write_text(PYTHON_AT_WORK)
    result = confined([sys.executable, "-W", "error", str(script)])
    assert (result.stdout, result.stderr, result.returncode) == ("done\n", "", 0)


PROGRAMS = {
    "bash": ["-c", "set -e; diff <(seq 3 | sort -r) <(printf '3\\n2\\n1\\n'); (sleep 0 & wait); echo ok > f; cat f"],
    "ls": ["-la", "/"],
    "sort": ["--parallel=4", "/etc/passwd"],
    "cp": ["-a", "/etc/passwd", "copy"],
    "tar": ["-cf", "archive.tar", "/etc/hostname"],
    "find": ["/etc", "-maxdepth", "1"],
    "git": ["-c", "init.defaultBranch=main", "init", "repository"],
    "node": ["-e", NODE_AT_WORK],
    "java": ["-version"],
    # These confine themselves, and have to go on where they cannot.
    "man": ["-P", "cat", "-l", "page.1"],
    "file": ["/etc/passwd"],
    "ssh": ["-V"],
    "perl": ["-e", "exit(fork() ? (wait() && $?) : 0)"],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_everyday_programs_work(name: str, tmp_path: Path) -> None:
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    (tmp_path / "page.1").write_text(".TH PAGE 1\n.SH NAME\npage \\- a page to read\n")
    result = confined([name, *PROGRAMS[name]], cwd=tmp_path)
    assert result.returncode == 0, result.stderr
