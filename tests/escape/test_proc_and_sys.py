"""The kernel's own file systems: what /proc tells about the host, and the switches in it.

| attack | stopped by | succeeds without it (`ablation.py`) |
|---|---|---|
| the host's facts and folders | masks over /proc | `proc-masks` |
| switches of the IPC namespace | /proc/sys is read-only, foreign owner | `real-root` |
| switches of the host | no capabilities in the host's user namespace | `real-root` |
| oom_score_adj | Landlock: nothing in /proc can be written | `landlock` |
| seeing other processes | process namespace, a fresh /proc, hidepid | `proc-of-the-host`, `hidden-processes` |
| looking into process 1 | hidepid, another user's, or in another user namespace | `real-root` |
| host paths in command lines | the cell is renamed | `command-line-renamed` |
| widening the user map | it can be written once | `user-map, capabilities` |
| the host's cgroup path | cgroup namespace | `cgroup-namespace` |
| the host's name | UTS namespace | `uts-namespace` |
| sysfs, cgroupfs, debugfs | minimal root | `minimal-root` |
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

import fumehood
from escape.laboratory import attack
from fumehood import AsyncSandbox

pytestmark = pytest.mark.anyio

PREFIX = os.path.realpath(sys.base_prefix)

FACTS = [
    *("cmdline", "config.gz", "diskstats", "interrupts", "kallsyms", "kcore", "key-users", "keys", "kmsg"),
    *("kpagecgroup", "kpagecount", "kpageflags", "locks", "modules", "partitions", "sched_debug", "schedstat"),
    *("slabinfo", "timer_list", "vmallocinfo", "sysrq-trigger"),
]


@pytest.mark.every_parameter
@pytest.mark.parametrize("name", FACTS)
async def test_a_fact_about_the_host_is_empty(sandbox: AsyncSandbox, name: str) -> None:
    found = await attack(sandbox, "found = outcome(lambda: open(path, 'rb').read(4096))", path=f"/proc/{name}")
    assert found in ("GOT b''", "ENOENT", "EACCES")


@pytest.mark.parametrize("name", ["acpi", "bus", "driver", "fs", "irq", "pressure", "scsi", "tty"])
async def test_a_folder_about_the_host_is_empty(sandbox: AsyncSandbox, name: str) -> None:
    found = await attack(sandbox, "found = outcome(lambda: os.listdir(path))", path=f"/proc/{name}")
    assert found in ("GOT []", "ENOENT")


NAMESPACE_SWITCHES = ["fs/mqueue/msg_max", "fs/mqueue/queues_max", "kernel/shmmax", "kernel/msgmnb", "kernel/sem"]


@pytest.mark.parametrize("switch", NAMESPACE_SWITCHES)
async def test_a_switch_of_the_namespace_cannot_be_turned(sandbox: AsyncSandbox, switch: str) -> None:
    code = "found = outcome(lambda: os.open(path, os.O_WRONLY))"
    assert await attack(sandbox, code, path=f"/proc/sys/{switch}") in ("EROFS", "EACCES", "ENOENT")


HOST_SWITCHES = [
    *("sys/kernel/core_pattern", "sys/kernel/modprobe", "sys/kernel/hostname", "sys/kernel/domainname"),
    *("sys/kernel/randomize_va_space", "sys/kernel/ns_last_pid", "sys/kernel/sysrq", "sys/vm/drop_caches"),
    *("sys/vm/overcommit_memory", "sys/fs/file-max", "sys/net/ipv4/ip_forward", "sys/net/ipv4/ping_group_range"),
    *("sys/user/max_user_namespaces", "sysrq-trigger", "sys/fs/binfmt_misc/register"),
]


@pytest.mark.parametrize("switch", HOST_SWITCHES)
async def test_a_switch_of_the_host_cannot_be_turned(sandbox: AsyncSandbox, switch: str) -> None:
    """Opening is the whole attack: nothing is written, in case it works. A mask can be opened, but leads nowhere."""
    code = """
        def turn():
            descriptor = os.open(path, os.O_WRONLY)
            return None if os.fstat(descriptor).st_rdev == os.makedev(1, 3) else descriptor

        found = outcome(turn)
    """
    assert await attack(sandbox, code, path=f"/proc/{switch}") in ("GOT None", "EROFS", "EACCES", "ENOENT")


@pytest.mark.parametrize("path", ["/sys/fs/cgroup", "/sys/kernel/debug", "/sys/kernel/tracing", "/sys/class/net"])
async def test_sysfs_is_not_there(sandbox: AsyncSandbox, path: str) -> None:
    assert await attack(sandbox, "found = outcome(lambda: os.listdir(path))", path=path) == "ENOENT"


async def test_only_harmless_kinds_of_file_systems_are_mounted(sandbox: AsyncSandbox) -> None:
    code = """
        mounts = (line.split() for line in open("/proc/self/mounts"))
        found = [(place, kind) for _, place, kind, *_ in mounts
                 if kind not in ("proc", "tmpfs", "devpts", "devtmpfs") and not place.startswith(tuple(own))]
    """
    own = ["/usr", "/etc", "/bin", "/sbin", "/lib", PREFIX]
    assert await attack(sandbox, code, own=own) == []


async def test_only_own_processes_are_in_proc(sandbox: AsyncSandbox) -> None:
    found = await attack(sandbox, "found = [os.getpid(), sorted(n for n in os.listdir('/proc') if n.isdigit())]")
    own, seen = found
    assert seen == [str(own)]


async def test_the_process_numbers_of_the_host_are_not_there(sandbox: AsyncSandbox) -> None:
    code = "found = [outcome(lambda: os.stat(f'/proc/{pid}')), outcome(lambda: os.kill(pid, 0))]"
    assert await attack(sandbox, code, pid=os.getpid()) == ["ENOENT", "ESRCH"]


PROCESS_1_SECRETS = {
    "environ": "open('/proc/1/environ').read()",
    "maps": "open('/proc/1/maps').read()",
    "mem": "open('/proc/1/mem', 'rb')",
    "mem, to write": "os.open('/proc/1/mem', os.O_RDWR)",
    "auxv": "open('/proc/1/auxv', 'rb').read()",
    "fd": "os.listdir('/proc/1/fd')",
    "fdinfo": "open('/proc/1/fdinfo/0').read()",
    "control stream, to read": "os.open('/proc/1/fd/100', os.O_RDONLY | os.O_NONBLOCK)",
    "control stream, to write": "os.open('/proc/1/fd/101', os.O_WRONLY | os.O_NONBLOCK)",
    "cwd": "os.readlink('/proc/1/cwd')",
    "root": "os.listdir('/proc/1/root/')",
    "exe": "os.readlink('/proc/1/exe')",
    "net namespace": "os.open('/proc/1/ns/net', os.O_RDONLY)",
    "user namespace": "os.open('/proc/1/ns/user', os.O_RDONLY)",
    "mount namespace": "os.open('/proc/1/ns/mnt', os.O_RDONLY)",
    "system call": "open('/proc/1/syscall').read()",
    "stack": "open('/proc/1/stack').read()",
    "io": "open('/proc/1/io').read()",
    "oom_score_adj": "write('/proc/1/oom_score_adj', '1000')",
    "soft-dirty bits": "write('/proc/1/clear_refs', '1')",
}


@pytest.mark.parametrize("secret", PROCESS_1_SECRETS.values(), ids=PROCESS_1_SECRETS)
async def test_process_1_keeps_to_itself_its(sandbox: AsyncSandbox, secret: str) -> None:
    assert await attack(sandbox, f"found = outcome(lambda: {secret})") in ("EACCES", "EPERM", "ENOENT")


async def test_no_command_line_names_a_folder_of_the_host(sandbox: AsyncSandbox) -> None:
    code = """
        lines = [outcome(lambda: open(f"/proc/{pid}/cmdline").read()) for pid in (1, "self")]
        found = [*lines, " ".join(sys.orig_argv)]
    """
    package = str(Path(str(fumehood.__file__)).parent)
    assert not [line for line in await attack(sandbox, code) if package in line]


async def test_the_own_cgroup_looks_like_the_top(sandbox: AsyncSandbox) -> None:
    code = "found = [line.strip().split(':', 2)[2] for line in open('/proc/self/cgroup')]"
    assert set(await attack(sandbox, code)) == {"/"}


async def test_the_hosts_name_is_unknown(sandbox: AsyncSandbox) -> None:
    code = (
        "import platform; found = [os.uname().nodename, open('/proc/sys/kernel/hostname').read().strip(), "
        "socket.gethostname(), platform.node()]"
    )
    assert socket.gethostname() not in await attack(sandbox, code)


@pytest.mark.parametrize("value", ["999", "0", "-1", "-1000"])
async def test_the_program_cannot_save_itself_from_the_out_of_memory_killer(sandbox: AsyncSandbox, value: str) -> None:
    code = "found = outcome(lambda: write('/proc/self/oom_score_adj', value))"
    assert await attack(sandbox, code, value=value) == "EACCES"


@pytest.mark.parametrize("table", ["uid_map", "gid_map", "projid_map"])
@pytest.mark.parametrize("users", ["0 0 4294967295", "0 0 1", "0 1000 1"])
async def test_the_user_map_cannot_be_widened(sandbox: AsyncSandbox, users: str, table: str) -> None:
    code = "found = outcome(lambda: write(path, users))"
    assert await attack(sandbox, code, path=f"/proc/self/{table}", users=users) in ("EACCES", "EPERM")


async def test_groups_stay_given_up(sandbox: AsyncSandbox) -> None:
    code = "found = [outcome(lambda: write('/proc/self/setgroups', 'allow')), outcome(lambda: os.setgroups([0]))]"
    assert await attack(sandbox, code) == ["EACCES", "EPERM"]
