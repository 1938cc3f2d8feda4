"""Machines of sandboxes: copies that share nothing, what they leave, what a program and QEMU can reach."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import machines
import pytest
import sampling
from containers import without_spares
from requirements import require

from fumehood import AsyncSandbox, FumehoodError, Policy, SandboxError
from fumehood.backends.microvm import backend as machine_backend
from fumehood.backends.microvm import clone
from fumehood.backends.microvm import start as machine_start
from fumehood.backends.microvm.acceleration import choose, device_problem
from fumehood.backends.microvm.confinement import Confinement, start_confined
from fumehood.backends.microvm.image import MachineImage, read_image
from fumehood.backends.microvm.launch import launch
from fumehood.backends.microvm.machine import describe, find_emulator
from fumehood.backends.microvm.qmp import ControlChannel
from fumehood.backends.microvm.template import MachineTemplates
from fumehood.backends.native.host_facts import detect
from fumehood.proof.carry_out import carry_out
from fumehood.proof.laboratory import open_laboratory
from fumehood.proof.trials import trials_of
from fumehood.results import Cause
from fumehood.tenant import LOCAL

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

POLICY = Policy(backend="microvm")
COPIES = sampling.amount(3, whole=20)
FRESH_COPIES = sampling.amount(2, whole=8)
IDENTITY = """
import json, os, socket, time, uuid
boot = open("/proc/sys/kernel/random/boot_id").read()
print(json.dumps({"urandom": os.urandom(16).hex(), "uuid": str(uuid.uuid4()), "boot_id": boot, "seed": hash("a"),
                  "address": id(object()), "time": time.time(), "name": socket.gethostname(),
                  "kernel": os.uname().release}))
"""


@pytest.fixture(autouse=True)
def machinery(monkeypatch: pytest.MonkeyPatch) -> None:
    require(machines.missing() is None, machines.missing() or "")
    without_spares(monkeypatch)


async def identity() -> dict[str, object]:
    async with AsyncSandbox(POLICY) as box:
        return json.loads((await box.run(IDENTITY)).check().stdout)


def emulators() -> set[int]:
    """Processes of QEMU that descend from this one: their cells are its children."""
    parents = {int(name): parent_of(int(name)) for name in os.listdir("/proc") if name.isdigit()}
    return {process for process in parents if is_emulator(process) and descends(process, parents)}


def parent_of(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError):
        return 0


def is_emulator(process: int) -> bool:
    try:
        return "qemu-system" in os.readlink(f"/proc/{process}/exe")
    except OSError:
        return False


def descends(process: int, parents: dict[int, int], ancestor: int | None = None) -> bool:
    while process > 1:
        process = parents.get(process, 0)
        if process == (ancestor or os.getpid()):
            return True
    return False


def status_of(process: int) -> dict[str, str]:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def is_there(path: str) -> bool:
    return os.path.lexists(path)


def wait_gone(pidfd: int, seconds: float = 60) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


async def test_copies_of_a_machine_share_no_randomness() -> None:
    found = [await identity() for _ in range(COPIES)]
    for source in ("urandom", "uuid", "boot_id"):
        assert len({each[source] for each in found}) == COPIES, source
    assert all(abs(float(str(each["time"])) - time.time()) < 600 for each in found)
    assert {each["name"] for each in found} == {"sandbox"}
    assert os.uname().release not in {each["kernel"] for each in found}
    # Said in docs/microvm.md: the interpreter is the template's.
    assert len({each["seed"] for each in found}) == 1


async def test_fresh_interpreters_of_copies_share_neither_hash_seeds_nor_addresses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As under a strict policy, which a machine of software refuses."""
    usual = machine_start.machine_start

    def fresh(*arguments: object, **options: object) -> object:
        return {**usual(*arguments, **options), "fresh": True}  # type: ignore[arg-type]

    monkeypatch.setattr(machine_backend, "machine_start", fresh)
    found = [await identity() for _ in range(FRESH_COPIES)]
    for source in ("urandom", "uuid", "boot_id", "seed", "address"):
        assert len({each[source] for each in found}) == FRESH_COPIES, source


ATTACKS = """
import ctypes, json, mmap, os, socket
libc, found = ctypes.CDLL(None, use_errno=True), {}
def call(name, number, *words):
    ctypes.set_errno(0)
    found[name] = "got" if libc.syscall(number, *words) >= 0 else os.strerror(ctypes.get_errno())
def path(name, place, flags=os.O_RDONLY):
    try:
        os.close(os.open(place, flags)); found[name] = "got"
    except OSError as error:
        found[name] = error.strerror
for name in ("mem", "kmem", "port", "vda", "vdb", "vport0p1", "vport0p2", "kmsg", "hwrng", "userfaultfd", "snapshot"):
    path(name, f"/dev/{name}")
for place in ("/proc/kcore", "/proc/1/mem", "/proc/1/fd/100", "/proc/1/root", "/.guest", "/sys/kernel",
              "/proc/sysrq-trigger"):
    path(place, place)
path("modules", "/proc/sys/kernel/modules_disabled", os.O_WRONLY)
path("core pattern", "/proc/sys/kernel/core_pattern", os.O_WRONLY)
for kind, name in ((0o020666, "char"), (0o060666, "block")):
    try:
        os.mknod(f"/tmp/{name}", kind, os.makedev(1, 1)); found["mknod " + name] = "got"
    except OSError as error:
        found["mknod " + name] = error.strerror
for family, name in ((socket.AF_PACKET, "packet"), (40, "vsock")):
    try:
        socket.socket(family, socket.SOCK_RAW if name == "packet" else socket.SOCK_STREAM); found[name] = "got"
    except OSError as error:
        found[name] = error.strerror
print(json.dumps(found))
"""
# Those that our filter answers by ending the process, one program each.
FATAL = {"init_module": 175, "finit_module": 313, "delete_module": 176, "iopl": 172, "ioperm": 173, "reboot": 169}


async def test_a_program_has_nothing_of_its_machine_but_what_the_kernel_gives_an_ordinary_user() -> None:
    async with AsyncSandbox(POLICY) as box:
        found = json.loads((await box.run(ATTACKS)).check().stdout)
        assert {name for name, answer in found.items() if answer == "got"} == set()
        for name, number in FATAL.items():
            code = f"import ctypes; print('GOT' if ctypes.CDLL(None).syscall({number}, 3, 0, 0, 0) >= 0 else 'no')"
            assert "GOT" not in (await box.run(code)).stdout, name
        devices = (await box.run("import os; print(*sorted(os.listdir('/dev')))")).check().stdout.split()
        assert set(devices) == {
            *("fd", "full", "mqueue", "null", "ptmx", "pts", "random", "shm"),
            *("stderr", "stdin", "stdout", "tty", "urandom", "zero"),
        }
        devices = (await box.run("print(open('/proc/net/dev').read())")).check().stdout
        assert [line.split(":")[0].strip() for line in devices.strip().splitlines()[2:]] == ["lo"]


async def test_qemu_itself_has_no_rights_and_no_files_of_the_host() -> None:
    before = emulators()
    async with AsyncSandbox(POLICY) as box:
        await box.run("pass")
        (process,) = emulators() - before
        status = status_of(process)
        assert int(status["Uid"].split()[0]) >= 1_000_000_000
        assert {status[name].strip("0") for name in ("CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb")} == {""}
        assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
        for kind in ("user", "pid", "net", "mnt", "ipc", "cgroup"):
            assert os.readlink(f"/proc/{process}/ns/{kind}") != os.readlink(f"/proc/self/ns/{kind}"), kind
        assert os.stat(f"/proc/{process}/root/usr").st_ino == os.stat("/usr").st_ino
        for place in ("var/lib", "sys", "etc/shadow", "root/.bashrc", "boot"):
            assert not is_there(f"/proc/{process}/root/{place}"), place
        kept = {os.readlink(f"/proc/{process}/fd/{name}").split(":")[0] for name in os.listdir(f"/proc/{process}/fd")}
        disks = {name for name in kept if name.startswith("/") and "memfd" not in name}
        allowed = ("/dev/null", str(machines.folder()))
        assert all(name.startswith(allowed) or name.startswith("anon_inode") for name in disks), disks


async def test_the_memory_of_a_machine_is_merged_with_that_of_no_other() -> None:
    """Equal pages of machines are not made one: writing to such a page takes longer, which tells what another has."""
    before = emulators()
    async with AsyncSandbox(POLICY) as box:
        await box.run("pass")
        (process,) = emulators() - before
        areas = Path(f"/proc/{process}/smaps").read_text().split("VmFlags:")[1:]
        flags = [set(area.splitlines()[0].split()) for area in areas]
    assert len(flags) > 20
    assert not [each for each in flags if "mg" in each]


# The chipset's bridges, interrupts, clocks and the way firmware gets its tables; and what is ours.
DEVICES = {
    *("q35-pcihost", "mch", "ICH9-LPC", "fw_cfg_io", "kvmvapic", "Nehalem-x86_64-cpu", "apic", "ioapic", "isa-i8259"),
    *("isa-pit", "isa-pcspk", "mc146818rtc", "i8257"),
    *("virtio-serial-pci", "virtio-serial-device", "virtserialport", "virtio-blk-pci", "virtio-blk-device"),
}


async def test_a_machine_has_the_devices_that_it_needs_and_no_other() -> None:
    """Each is code that reads what a broken kernel writes: no floppy drive, no IDE, no memory of a bus."""
    confinement = Confinement(detect())
    memory = os.memfd_create("ram", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        description = describe(find_emulator(), POLICY.resources.memory)
        os.ftruncate(memory, description.ram_bytes)
        emulation = await launch(confinement, description, read_image(None), memory, boots=True)
        try:
            await emulation.control.greet()
            kinds = await emulation.control.call("qom-list-types", implements="device")
            found = await types_below(emulation.control, "/machine")
        finally:
            await emulation.close()
    finally:
        confinement.close()
        os.close(memory)
    assert found & {kind["name"] for kind in kinds} == DEVICES


async def types_below(control: ControlChannel, place: str) -> set[str]:
    found: set[str] = set()
    for each in await control.call("qom-list", path=place):
        if each["type"].startswith("child<"):
            found |= {each["type"][6:-1], *await types_below(control, f"{place}/{each['name']}")}
    return found


PYTHON = os.path.realpath("/usr/bin/python3")
# Executed where QEMU would be, with the machine's memory as descriptor 3.
HELPER = """
import errno, json, mmap, os, socket, sys
found = {}
def attempt(name, act):
    try:
        act(); found[name] = "got"
    except (OSError, ValueError) as error:
        found[name] = errno.errorcode.get(getattr(error, "errno", 0), str(error))
attempt("a shell", lambda: os.execv("/bin/sh", ["sh", "-c", "true"]))
attempt("another program", lambda: os.execv("/usr/bin/env", ["env"]))
attempt("accounts", lambda: open("/etc/shadow"))
attempt("a file of the user's", lambda: open(sys.argv[1]))
attempt("a folder of the system", lambda: open("/usr/x", "w"))
attempt("network", lambda: socket.create_connection(("192.0.2.1", 80), 1))
attempt("the template by write", lambda: os.pwrite(3, b"x", 0))
attempt("the template by name", lambda: os.pwrite(os.open("/proc/self/fd/3", os.O_RDWR), b"x", 0))
attempt("the template by map", lambda: mmap.mmap(3, 4096, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE))
attempt("the template's size", lambda: os.ftruncate(3, 0))
found["private map"] = mmap.mmap(3, 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)[:4].decode()
found["processes"] = len([name for name in os.listdir("/proc") if name.isdigit()])
print(json.dumps(found))
"""


async def test_whoever_takes_qemus_place_finds_an_empty_sandbox(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of the user")
    memory = os.memfd_create("template", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(memory, b"seal" + bytes(4092))
    fcntl.fcntl(
        memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
    )
    confinement = Confinement(detect())
    try:
        process = await start_confined(
            confinement, [PYTHON, "-I", "-S", "-c", HELPER, str(secret)], [memory], memory_bytes=256 * 1024 * 1024
        )
        assert await process.wait(60) is not None
        await process.close()
        found = json.loads(process.last_words())
    finally:
        confinement.close()
        os.close(memory)
    assert found.pop("private map") == "seal"
    assert found.pop("processes") <= 2
    assert {name for name, answer in found.items() if answer == "got"} == set(), found
    assert found["the template by write"] == found["the template by name"] == "EPERM"


async def test_a_start_that_is_given_up_leaves_no_process() -> None:
    """The thread that starts it goes on, and nobody would ever hear of what it has started."""
    confinement = Confinement(detect())
    nothing = os.open(os.devnull, os.O_RDONLY)
    try:
        for seconds in (60.0, 0.0):
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    command = [PYTHON, "-I", "-S", "-c", "import time; time.sleep(600)"]
                    process = await start_confined(confinement, command, [nothing], memory_bytes=256 * 1024 * 1024)
                    await process.close()
            assert sleepers() == []
    finally:
        confinement.close()
        os.close(nothing)


def sleepers() -> list[int]:
    """Programs in sandboxes of this process: the cells themselves are called otherwise."""
    parents = {int(name): parent_of(int(name)) for name in os.listdir("/proc") if name.isdigit()}
    return [process for process in parents if descends(process, parents) and b"time.sleep(600)" in words_of(process)]


def words_of(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize("is_compared", [True, False])
async def test_a_proof_notices_that_nobody_compares_the_digest_of_an_image(
    monkeypatch: pytest.MonkeyPatch, is_compared: bool
) -> None:
    def by_name(name: str | None) -> MachineImage:
        return read_image(name and name.partition("@")[0])

    if not is_compared:
        monkeypatch.setattr(machine_backend, "read_image", by_name)
    async with open_laboratory(POLICY) as lab:
        results = {trial.kind: (await carry_out(trial, lab, {})).result for trial in trials_of(["image"])}
    assert results == {"attack": "held" if is_compared else "broken", "use": "held"}


@pytest.mark.parametrize("outputs", [(), ("out/**",)], ids=["no outputs", "outputs"])
async def test_a_run_whose_emulator_is_killed_is_lost_and_leaves_nothing(outputs: tuple[str, ...]) -> None:
    before = emulators()
    async with AsyncSandbox(POLICY.override({"filesystem": {"outputs": list(outputs)}})) as box:
        run = await box.start("print('up', flush=True)\nimport time; time.sleep(600)")
        assert b"up" in (await run.read(wait=60)).stdout
        (process,) = emulators() - before
        pidfd = os.pidfd_open(process)
        os.kill(process, signal.SIGKILL)
        assert wait_gone(pidfd)
        os.close(pidfd)
        assert (await run.wait()).cause is Cause.LOST
        with pytest.raises(SandboxError):
            await box.run("pass")
    assert emulators() - before == set()


@asynccontextmanager
async def started_machine() -> AsyncIterator[tuple[clone.Machine, int]]:
    """One without a sandbox, and a descriptor of its emulator. Leaves nothing."""
    before = emulators()
    confinement = Confinement(detect())
    templates = MachineTemplates(confinement)
    try:
        image = read_image(None)
        template = await templates.get(image, describe(find_emulator(), POLICY.resources.memory))
        start = machine_start.machine_start(POLICY, image, None, has_packages=False)
        machine = await clone.start_machine(confinement, clone.CopySpec(template, image, start, None, 1.0, LOCAL))
        (process,) = emulators() - before
        pidfd = os.pidfd_open(process)
        try:
            yield machine, pidfd
        finally:
            os.close(pidfd)
            await machine.close()
    finally:
        await templates.close()
        confinement.close()
    assert emulators() - before == set()


async def test_a_guest_that_ends_takes_its_machine_along() -> None:
    """Process 1 of a machine ends when what it is sent makes no sense: its kernel has nothing left to do."""
    async with started_machine() as (machine, pidfd):
        machine.bridge.send_raw(b"\xff" * 64)
        assert await asyncio.to_thread(wait_gone, pidfd)


async def test_a_spare_machine_whose_emulator_was_killed_is_no_error_but_passed_over() -> None:
    async with started_machine() as (machine, pidfd):
        await machine.rest()
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        assert await asyncio.to_thread(wait_gone, pidfd)
        assert not await machine.answers()


@pytest.mark.parametrize("share", sampling.amount(1, whole=4) * [0.05] + sampling.amount(1, whole=4) * [0.3])
async def test_a_machine_that_is_not_ready_in_time_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    await identity()  # the template is there
    began = time.monotonic()
    await identity()
    before = emulators()
    monkeypatch.setattr(clone, "_START_SECONDS", share * (time.monotonic() - began))
    with pytest.raises(SandboxError, match="not ready"):
        async with AsyncSandbox(POLICY):
            pass
    assert emulators() - before == set()


def test_kvm_is_tried_and_software_is_used_where_it_does_not_run_machines() -> None:
    """As `hood doctor` does it, whatever was found before."""
    works, said = machine_backend.examine()
    assert works, said
    if (problem := device_problem()) is None:
        tried = json.loads((machines.folder() / "templates" / "kvm.json").read_text())["problem"]
        assert choose(None, tried).reason in said
        assert ("by hardware (KVM)" in said) == (tried is None)
    else:
        assert f"by software (TCG; /dev/kvm: {problem})" in said


HOST = """
import anyio, os, sys, time
from fumehood import AsyncSandbox, Policy
async def main():
    async with AsyncSandbox(Policy(backend="microvm")) as box:
        await box.run("pass")
        print("up", flush=True)
        time.sleep(600)
anyio.run(main)
"""


@pytest.fixture
def host() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, "-c", HOST], stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


async def test_a_host_that_is_killed_takes_its_machines_along(host: subprocess.Popen[str]) -> None:
    assert host.stdout is not None
    assert host.stdout.readline().strip() == "up"
    parents = {int(name): parent_of(int(name)) for name in os.listdir("/proc") if name.isdigit()}
    (process,) = (each for each in parents if is_emulator(each) and descends(each, parents, host.pid))
    pidfd = os.pidfd_open(process)
    host.kill()
    assert await asyncio.to_thread(partial(wait_gone, pidfd))
    os.close(pidfd)


@pytest.mark.parametrize(
    ("key", "sections"),
    [
        ("kernel", {"strict": True}),
        ("filesystem.mounts", {"filesystem": {"mounts": [{"source": "/usr/share", "target": "/data"}]}}),
        ("docker", {"docker": {"runtime": "runsc"}}),
    ],
)
async def test_what_a_machine_cannot_hold_is_refused_by_name(key: str, sections: dict[str, object]) -> None:
    with pytest.raises(FumehoodError, match=f"^{key}"):
        async with AsyncSandbox(Policy(backend="microvm", **sections)):
            pass
