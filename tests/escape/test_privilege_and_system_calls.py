"""System calls: doing what only the kernel's friends may do.

| attack | stopped by | succeeds without it (`ablation.py`) |
|---|---|---|
| what an ordinary user could call (`UNPRIVILEGED`) | seccomp | `seccomp` |
| what needs a capability in a namespace (`NAMESPACED`) | seccomp, capabilities | `seccomp, capabilities` |
| what needs the host's root (`ADMINISTRATIVE`) | seccomp, capabilities, user namespace | `real-root` |
| calls of other architectures | seccomp kills | `seccomp` |

Arguments are chosen so that a call that gets through does no harm: wrong magic numbers, paths that do not exist. The
kernel looks at privileges first, so the answer tells how far it got.
"""

from __future__ import annotations

import os
import signal

import pytest

from escape.laboratory import attack, number_of
from fumehood import AsyncSandbox

pytestmark = pytest.mark.anyio

UNPRIVILEGED = {
    "a user namespace": ("unshare", "0x10000000"),
    "a user namespace by clone": ("clone", "0x10000000 | signal.SIGCHLD, 0, 0, 0, 0"),
    "a user namespace by clone, behind upper bits": ("clone", "0x7fff10000011, 0, 0, 0, 0"),
    "clone3, whose flags cannot be seen": ("clone3", "struct.pack('8Q', 0, 0, 0, 0, 17, 0, 0, 0), 64"),
    "tracing": ("ptrace", "0, 0, 0, 0"),
    "asking to be traced by process 1": ("ptrace", "0x4206, 1, 0, 0"),
    "reading memory of a process": ("process_vm_readv", "os.getpid(), iovec, 1, iovec, 1, 0"),
    "writing memory of a process": ("process_vm_writev", "os.getpid(), iovec, 1, iovec, 1, 0"),
    "taking a descriptor of a process": ("pidfd_getfd", "os.pidfd_open(os.getpid()), 0, 0"),
    "comparing processes": ("kcmp", "os.getpid(), os.getpid(), 1, 0, 0"),
    "asynchronous calls": ("io_uring_setup", "1, bytes(120)"),
    "kernel AIO": ("io_setup", "1, bytes(8)"),
    "page faults in user space": ("userfaultfd", "1"),
    "performance counters": (
        "perf_event_open",
        "struct.pack('IIQQQQQ', 1, 128, 9, 0, 0, 0, 0x61) + bytes(80), 0, -1, -1, 0",
    ),
    "file handles": ("name_to_handle_at", "-100, b'/usr', struct.pack('Ii', 128, 0) + bytes(128), bytes(4), 0"),
    "watching file systems": ("fanotify_init", "0x200, 0"),
    "segments": ("modify_ldt", "0, bytes(16), 16"),
    "a predictable address space": ("personality", "0x0040000"),
    "readable means executable": ("personality", "0x0400000"),
    "mapping page zero": ("personality", "0x0100000"),
    "other processors": ("sched_setaffinity", "0, 8, struct.pack('Q', 1)"),
    "memory policy": ("set_mempolicy", "0, 0, 0"),
    "binding memory": ("mbind", "0, 0, 0, 0, 0, 0"),
    "moving pages": ("move_pages", "0, 0, 0, 0, 0, 0"),
    "flushing a file system of the host": ("syncfs", "os.open('/usr', 0)"),
    "a new view of a mount": ("open_tree", "-100, b'/usr', 0"),
    "listing mounts": ("listmount", "struct.pack('IIQQQ', 32, 0, 0xFFFFFFFFFFFFFFFF, 0, 0), bytes(64), 8, 0"),
    "the page cache of host files": ("cachestat", "os.open('/usr/bin/env', 0), bytes(16), bytes(40), 0"),
    "open by rules that cannot be seen": ("openat2", "-100, b'/usr', struct.pack('QQQ', 0, 0, 0), 24"),
}

NAMESPACED = {
    "changing the root": ("chroot", "b'/workspace'"),
    "a mount": ("mount", "b'evil', b'/workspace', b'tmpfs', 0, 0"),
    "a mount of devices": ("mount", "b'evil', b'/workspace', b'devtmpfs', 0, 0"),
    "a mount of control groups": ("mount", "b'evil', b'/workspace', b'cgroup2', 0, 0"),
    "making a mount writable": ("mount", "b'', b'/usr', b'', 0x1020, 0"),
    "taking a mask off": ("umount2", "b'/proc/kallsyms', 2"),
    "taking /proc off": ("umount2", "b'/proc', 2"),
    "swapping the root": ("pivot_root", "b'/workspace', b'/workspace'"),
    "a copy of a mount": ("open_tree", "-100, b'/', 0x8001"),
    "moving a mount": ("move_mount", "os.open('/workspace', 0), b'', -100, b'/tmp', 4"),
    "mount attributes": ("mount_setattr", "-100, b'/workspace', 0, struct.pack('QQQQ', 0, 1, 0, 0), 32"),
    "a file system by the new calls": ("fsopen", "b'tmpfs', 0"),
    "picking a file system": ("fspick", "-100, b'/workspace', 0"),
    "a mount namespace": ("unshare", "0x00020000"),
    "a network namespace": ("unshare", "0x40000000"),
    "a process namespace": ("unshare", "0x20000000"),
    "joining a namespace of its own": ("setns", "os.open('/proc/self/ns/net', 0), 0"),
    "a name of the machine": ("sethostname", "b'evil', -1"),
    "a domain name": ("setdomainname", "b'evil', -1"),
    "a file by its handle": ("open_by_handle_at", "os.open('/usr', 0), struct.pack('Ii', 8, 1) + bytes(8), 0"),
}

ADMINISTRATIVE = {
    "a restart": ("reboot", "1, 2, 3, 0"),
    "a new kernel": ("kexec_load", "0, 0, 0, 0x80"),
    "a new kernel from a file": ("kexec_file_load", "-1, -1, 0, b'', 0x80"),
    "a module": ("init_module", "b'', 0, b''"),
    "a module from a file": ("finit_module", "-1, b'', 0"),
    "removing a module": ("delete_module", "b'hood_no_such_module', 0"),
    "swapping": ("swapon", "b'/workspace/none', 0"),
    "no swapping": ("swapoff", "b'/workspace/none'"),
    "the time": ("clock_settime", "0, struct.pack('qq', -1, -1)"),
    "the time of day": ("settimeofday", "struct.pack('qq', -1, -1), 0"),
    "the clock's speed": ("adjtimex", "struct.pack('I', 0x4000) + bytes(204)"),
    "process accounting": ("acct", "b'/workspace/none'"),
    "quotas": ("quotactl", "0x80000200, b'/workspace/none', 0, 0"),
    "hardware ports": ("iopl", "3"),
    "some hardware ports": ("ioperm", "0x70, 1, 1"),
    "kernel programs": ("bpf", "5, struct.pack('IIQQIIQII', 1, 2, 0, 0, 0, 0, 0, 0, 0) + bytes(64), 112"),
    "a kernel map": ("bpf", "0, struct.pack('IIIII', 2, 4, 4, 1, 0) + bytes(100), 120"),
    "cookies of directory entries": ("lookup_dcookie", "0, bytes(64), 64"),
}
TOOLS = """
    buffer = ctypes.create_string_buffer(8)
    iovec = struct.pack("PQ", ctypes.addressof(buffer), 8)
"""


async def refusal(sandbox: AsyncSandbox, name: str, arguments: str) -> str:
    return await attack(
        sandbox, f"{TOOLS}\n    found = outcome(lambda: call(number, {arguments}))", number=number_of(name)
    )


@pytest.mark.every_parameter
@pytest.mark.parametrize(("name", "arguments"), UNPRIVILEGED.values(), ids=UNPRIVILEGED)
async def test_sandboxed_code_has_no_use_for(sandbox: AsyncSandbox, name: str, arguments: str) -> None:
    assert await refusal(sandbox, name, arguments) in ("EPERM", "ENOSYS")


@pytest.mark.every_parameter
@pytest.mark.parametrize(("name", "arguments"), NAMESPACED.values(), ids=NAMESPACED)
async def test_namespaces_and_mounts_stay_as_they_are_despite(sandbox: AsyncSandbox, name: str, arguments: str) -> None:
    assert await refusal(sandbox, name, arguments) == "EPERM"


@pytest.mark.every_parameter
@pytest.mark.parametrize(("name", "arguments"), ADMINISTRATIVE.values(), ids=ADMINISTRATIVE)
async def test_the_machine_cannot_be_administered_by(sandbox: AsyncSandbox, name: str, arguments: str) -> None:
    assert await refusal(sandbox, name, arguments) in ("EPERM", "ENOSYS")


@pytest.mark.parametrize("kind", ["net", "mnt", "pid", "user", "ipc", "uts", "cgroup"])
async def test_the_namespace_of_process_1_cannot_be_joined(sandbox: AsyncSandbox, kind: str) -> None:
    code = "found = outcome(lambda: call(number, os.open(path, os.O_RDONLY), 0))"
    answer = await attack(sandbox, code, path=f"/proc/1/ns/{kind}", number=number_of("setns"))
    assert answer in ("EACCES", "EPERM", "ENOENT")


NAMESPACE_QUESTIONS = {"the owner": "net", "the parent of the users": "user", "the parent of the processes": "pid"}


@pytest.mark.parametrize(("question", "kind"), NAMESPACE_QUESTIONS.items(), ids=NAMESPACE_QUESTIONS)
async def test_a_namespace_does_not_lead_to(sandbox: AsyncSandbox, question: str, kind: str) -> None:
    request = 0xB701 if question == "the owner" else 0xB702
    code = "found = outcome(lambda: fcntl.ioctl(os.open(path, os.O_RDONLY), request))"
    assert await attack(sandbox, code, path=f"/proc/self/ns/{kind}", request=request) == "EPERM"


MACHINE_CODE = {
    "32-bit": bytes.fromhex("b814000000cd80c3"),  # mov eax, 20 (getpid); int 0x80; ret
    "x32": bytes.fromhex("b8270000400f05c3"),  # mov eax, 0x40000027 (getpid); syscall; ret
}


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="other machines have one set of system calls")
@pytest.mark.parametrize("instructions", MACHINE_CODE.values(), ids=MACHINE_CODE)
async def test_calls_of_another_set_end_the_process(sandbox: AsyncSandbox, instructions: bytes) -> None:
    code = """
        page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        page.write(instructions)
        function = ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
        found = in_child(function)
    """
    assert await attack(sandbox, code, instructions=instructions) == -signal.SIGSYS
