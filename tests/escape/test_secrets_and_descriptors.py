"""Secrets and descriptors: whatever the host process has, knows or holds open.

| attack | stopped by | succeeds without it (`ablation.py`) |
|---|---|---|
| the host's environment, in variables, /proc and memory | the cell starts with an empty one | `empty-environment` |
| inherited descriptors | closed at the start of the cell, of the run, of the program | `descriptors-closed` |
| terminal, signal settings, umask, cwd | the cell forgets the host | `host-forgotten`, `own-folder` |
| core files | RLIMIT_CORE | `rlimits` |
| key rings, typing into terminals | seccomp | `seccomp` |
| abstract sockets | network namespace, Landlock scope | `network-namespace, landlock` |
"""

from __future__ import annotations

import os
import pty
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

import fumehood
from escape.conftest import MakeSandbox
from escape.laboratory import SCAN_MEMORY, attack, booty, number_of, program, told
from fumehood import AsyncSandbox

pytestmark = pytest.mark.anyio

OWN_VARIABLES = {
    *("PATH", "HOME", "USER", "LOGNAME", "LANG", "TMPDIR", "PYTHONUNBUFFERED"),
    *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "GOMAXPROCS", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"),
}


LOOK_AT_ONESELF = """
    lines = (line.rstrip("\\n").split(":\\t", 1) for line in open("/proc/self/status"))
    status = dict(line for line in lines if len(line) == 2)
    found = {
        "ignored": int(status["SigIgn"], 16),
        "blocked": int(status["SigBlk"], 16),
        "umask": status["Umask"],
        "cwd": os.getcwd(),
        "terminal": outcome(lambda: os.open("/dev/tty", os.O_RDWR)),
        "descriptors": [n for n in range(1024) if outcome(lambda: os.fstat(n)).startswith("GOT")],
        "variables": dict(os.environ),
        "environ": open("/proc/self/environ").read(),
    }
"""


@pytest.fixture(scope="module", params=["0", "1"], ids=["first policy", "next policy"])
def seen(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What a run sees of a host process that is in every unusual state at once."""
    ours, theirs = pty.openpty()
    command = [sys.executable, str(Path(__file__).with_name("hostile_host.py")), os.ttyname(theirs), request.param]
    package = Path(str(fumehood.__file__)).parents[1]
    environment = {**os.environ, "PYTHONPATH": str(package), "HOOD_SECRET": "canary-in-the-environment"}
    try:
        host = subprocess.run(
            command, env=environment, input=program(LOOK_AT_ONESELF), stdout=subprocess.PIPE, check=True, text=True
        )
    finally:
        os.close(ours)
        os.close(theirs)
    return told(host.stdout)


async def test_ignored_signals_do_not_come_along(seen: dict[str, Any]) -> None:
    python_ignores = (1 << signal.SIGPIPE - 1) | (1 << signal.SIGXFSZ - 1)
    assert seen["ignored"] == python_ignores


async def test_blocked_signals_do_not_come_along(seen: dict[str, Any]) -> None:
    assert seen["blocked"] == 0


async def test_the_umask_does_not_come_along(seen: dict[str, Any]) -> None:
    assert seen["umask"] == "0022"


async def test_the_current_folder_does_not_come_along(seen: dict[str, Any]) -> None:
    assert seen["cwd"] == "/workspace"


async def test_the_terminal_does_not_come_along(seen: dict[str, Any]) -> None:
    assert seen["terminal"] == "ENXIO"


async def test_inheritable_descriptors_do_not_come_along(seen: dict[str, Any]) -> None:
    assert seen["descriptors"] == [0, 1, 2]


async def test_the_environment_does_not_come_along(seen: dict[str, Any]) -> None:
    assert set(seen["variables"]) <= OWN_VARIABLES
    assert "canary-in-the-environment" not in seen["environ"]


async def test_a_secret_of_the_host_is_not_in_the_memory_of_a_run(
    make_cold_sandbox: Callable[[], AsyncSandbox], canary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOD_CANARY", canary)
    head, tail = canary[:20].encode(), canary[20:].encode()
    async with make_cold_sandbox() as sandbox:
        assert await attack(sandbox, SCAN_MEMORY, head=head, tail=tail) == 0


async def test_no_process_shows_a_secret_of_the_host(
    make_cold_sandbox: Callable[[], AsyncSandbox], canary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOD_CANARY", canary)
    code = """
        found = [outcome(lambda: open(f"/proc/{pid}/{name}").read())
                 for pid in os.listdir("/proc") if pid.isdigit() for name in ("environ", "cmdline")]
        found.append(repr(os.environ))
    """
    async with make_cold_sandbox() as sandbox:
        found = await attack(sandbox, code)
    assert len(found) == 3
    assert not [text for text in found if canary in text]


SCAN_DESCRIPTORS = "found = [n for n in range(1024) if outcome(lambda: os.fstat(n)).startswith('GOT')]"


async def test_a_run_has_three_descriptors(sandbox: AsyncSandbox) -> None:
    assert await attack(sandbox, SCAN_DESCRIPTORS) == [0, 1, 2]


async def test_an_inheritable_descriptor_of_the_host_stays_there(
    make_cold_sandbox: Callable[[], AsyncSandbox], host_secret: Path
) -> None:
    with host_secret.open() as stream:
        os.set_inheritable(stream.fileno(), True)
        async with make_cold_sandbox() as sandbox:
            assert await attack(sandbox, SCAN_DESCRIPTORS) == [0, 1, 2]


async def test_a_command_has_three_descriptors(sandbox: AsyncSandbox) -> None:
    """Asked without opening anything, as a folder listing would."""
    script = "n=0; while [ $n -lt 256 ]; do [ -e /proc/$$/fd/$n ] && echo $n; n=$((n + 1)); done; echo end"
    result = await sandbox.run(argv=["sh", "-c", script])
    assert result.stdout.split() == ["0", "1", "2", "end"]


@pytest.mark.parametrize("limit", [16, 20, 24, 32])
async def test_small_limits_and_many_runs_leak_no_descriptor(make_sandbox: MakeSandbox, limit: int) -> None:
    """A leaked one is a channel of the machinery: whoever has it can forge answers to the host."""
    found: list[object] = []
    async with make_sandbox(resources={"open_files": limit}) as sandbox:

        async def run() -> None:
            found.append(booty(await sandbox.run(program(SCAN_DESCRIPTORS))))

        async with anyio.create_task_group() as tasks:
            for _ in range(16):
                tasks.start_soon(run)
    assert found == [[0, 1, 2]] * 16


KEY_CALLS = {
    "the session key ring": ("keyctl", "0, -3, 0"),
    "the user's key ring": ("keyctl", "0, -4, 1"),
    "a search in it": ("keyctl", "10, -3, b'user', b'hood', 0"),
    "joining a key ring": ("keyctl", "1, b'hood'"),
    "a new key": ("add_key", "b'user', b'hood', b'x', 1, -3"),
    "asking for a key": ("request_key", "b'user', b'hood', 0, -3"),
}


@pytest.mark.parametrize(("name", "arguments"), KEY_CALLS.values(), ids=KEY_CALLS)
async def test_key_rings_are_out_of_reach(sandbox: AsyncSandbox, name: str, arguments: str) -> None:
    code = f"found = outcome(lambda: call(number, {arguments}))"
    assert await attack(sandbox, code, number=number_of(name)) == "EPERM"


async def test_an_abstract_socket_of_the_host_is_out_of_reach(sandbox: AsyncSandbox, canary: str) -> None:
    with socket.socket(socket.AF_UNIX) as agent:
        agent.bind(f"\0{canary}")
        agent.listen()
        code = "found = outcome(lambda: socket.socket(socket.AF_UNIX).connect(chr(0) + name))"
        assert await attack(sandbox, code, name=canary) in ("ECONNREFUSED", "EPERM")


TERMINAL_CALLS = {"TIOCSTI": 0x5412, "TIOCLINUX": 0x541C, "TIOCCONS": 0x541D, "TIOCSETD": 0x5423}


@pytest.mark.parametrize("request_code", TERMINAL_CALLS.values(), ids=TERMINAL_CALLS)
async def test_nothing_can_be_typed_into_a_terminal(sandbox: AsyncSandbox, request_code: int) -> None:
    code = """
        import pty
        _, terminal = pty.openpty()
        found = outcome(lambda: fcntl.ioctl(terminal, request_code, b"\\0\\0\\0\\0"))
    """
    assert await attack(sandbox, code, request_code=request_code) == "EPERM"


async def test_upper_bits_do_not_hide_a_terminal_call(sandbox: AsyncSandbox) -> None:
    code = """
        import pty
        _, terminal = pty.openpty()
        found = outcome(lambda: call(number, terminal, 0x7fff00005412, b"x"))
    """
    assert await attack(sandbox, code, number=number_of("ioctl")) == "EPERM"


async def test_the_kernels_messages_are_out_of_reach(sandbox: AsyncSandbox) -> None:
    code = "found = outcome(lambda: call(number, 3, ctypes.create_string_buffer(4096), 4096))"
    assert await attack(sandbox, code, number=number_of("syslog")) == "EPERM"


async def test_a_crash_leaves_no_core(sandbox: AsyncSandbox) -> None:
    code = """
        def crash():
            most = resource.getrlimit(resource.RLIMIT_CORE)[1]
            resource.setrlimit(resource.RLIMIT_CORE, (most, most))
            os.kill(os.getpid(), signal.SIGSEGV)

        found = [in_child(crash), [name for name in os.listdir(".") if "core" in name]]
    """
    assert await attack(sandbox, code) == [-signal.SIGSEGV, []]
