"""The blocking API with one event loop thread for the process: interrupts, forks and what is left behind."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import fumehood
from fumehood import AsyncSandbox, Policy, Sandbox
from fumehood.audit import AuditLog, Query

# Until its input ends, which it does not.
WAIT = "import sys\nopen('/shared/begun', 'w').close()\nsys.stdin.read()"


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AuditLog:
    monkeypatch.setenv("FUMEHOOD_AUDIT", str(tmp_path / "log"))
    return AuditLog.at(tmp_path / "log")


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    folder = tmp_path / "shared"
    folder.mkdir()
    os.mkfifo(folder / "begun")
    return folder


@pytest.fixture
def interruptible() -> Iterator[None]:
    """As in a program at a terminal: a process that was started in the background ignores SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def stdin() -> Iterator[int]:
    read, write = os.pipe()
    with open(read, "rb"), open(write, "wb"):
        yield read


def interrupt() -> None:
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def interrupt_when_begun(shared: Path) -> threading.Thread:
    def wait() -> None:
        (shared / "begun").read_bytes()
        interrupt()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def sharing(folder: Path) -> Policy:
    return Policy(filesystem={"mounts": [{"source": str(folder), "target": "/shared", "mode": "rw"}]})


def ends(log: AuditLog) -> list[tuple[str, str | None]]:
    return [(record.kind, record.data.get("status")) for record in log.find(Query())][-2:]


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_the_run_and_the_sandbox_goes_on(log: AuditLog, shared: Path, stdin: int) -> None:
    with Sandbox(sharing(shared)) as box:
        interrupter = interrupt_when_begun(shared)
        with pytest.raises(KeyboardInterrupt):
            box.run(WAIT, stdin=stdin)
        interrupter.join()
        assert ends(log)[-1] == ("run.finished", "cancelled")
        assert box.run("print('on')").stdout == "on\n"


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_a_sandbox_for_one_run(log: AuditLog, shared: Path, stdin: int) -> None:
    interrupter = interrupt_when_begun(shared)
    with pytest.raises(KeyboardInterrupt):
        fumehood.run(WAIT, sharing(shared), stdin=stdin)
    interrupter.join()
    assert ends(log) == [("run.finished", "cancelled"), ("sandbox.closed", None)]


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_as_a_sandbox_opens_closes_it(log: AuditLog, monkeypatch: pytest.MonkeyPatch) -> None:
    open_sandbox = AsyncSandbox.__aenter__

    async def interrupted(box: AsyncSandbox) -> AsyncSandbox:
        await open_sandbox(box)
        interrupt()
        return box

    monkeypatch.setattr(AsyncSandbox, "__aenter__", interrupted)
    box = Sandbox()
    with pytest.raises(KeyboardInterrupt):
        box.__enter__()
    assert not box.target.is_open
    assert [kind for kind, _ in ends(log)] == ["sandbox.opened", "sandbox.closed"]


def test_an_error_that_closes_the_sandbox_is_not_replaced_by_one_of_the_log(log: AuditLog, tmp_path: Path) -> None:
    def fail_without_log() -> None:
        with Sandbox():
            log.folder.rename(tmp_path / "aside")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_without_log()


def test_closed_sandboxes_leave_one_idle_thread() -> None:
    program = """
import threading, fumehood
for _ in range(3):
    with fumehood.Sandbox() as first, fumehood.Sandbox() as second:
        first.files.write("a", b"1")
        first.files.upload("/etc/hostname", "b")
        second.run("print(1)")
    fumehood.run("print(1)")
for thread in threading.enumerate():
    if thread.name == "AnyIO worker thread":
        thread.join(10)
print(sorted(thread.name for thread in threading.enumerate()))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "['MainThread', 'fumehood']\n", "")


def test_a_stream_that_was_dropped_can_be_collected_in_the_loops_own_thread(log: AuditLog) -> None:
    """The end of its run is not waited for there: it needs that thread."""

    class Holder:
        def __init__(self, stream: Iterator[object]) -> None:
            self.itself, self.stream = self, stream

    async def collect() -> None:
        gc.collect()

    gc.disable()
    try:
        with Sandbox() as box:
            holder = Holder(box.stream("print('up', flush=True)\nwhile True: pass"))
            next(holder.stream)
            del holder
            box.loop.call(collect)
            while box.loop._streams:
                assert box.run("print(1)").stdout == "1\n"
    finally:
        gc.enable()
    statuses = [record.data["status"] for record in log.find(Query(kind="run.finished"))]
    assert statuses.count("cancelled") == 1


def test_a_sandbox_shows_its_policy_and_whether_it_is_open() -> None:
    box = Sandbox({"name": "reader"})
    assert repr(box) == "Sandbox(not open, policy 'reader')"
    with box:
        assert repr(box) == "Sandbox(open, policy 'reader')"
