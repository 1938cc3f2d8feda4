"""Every protection that the attacks are aimed at, and how to take it out of a copy of the source.

A patch replaces one piece of text in one file. A piece that is not there any more is an error: then the protection has
moved, and this list has to follow.
"""

from __future__ import annotations

from typing import NamedTuple

GUEST, NATIVE, RUNS = "guest", "backends/native", "backends/runs"
ISOLATION, ROOTFS, CELL = f"{GUEST}/isolation.py", f"{GUEST}/rootfs.py", f"{GUEST}/cell.py"

# What a root that is not minimal would show.
HOST_PLACES = (
    *("/var/tmp", "/var/lib", "/var/log", "/home", "/opt", "/srv", "/mnt", "/media", "/boot", "/sys"),
    *("/root/.bashrc", "/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/ssh", "/etc/ssl", "/etc/machine-id"),
    *("/etc/hostname", "/dev/kmsg", "/dev/vda", "/dev/kvm", "/dev/fuse", "/dev/net", "/dev/mem"),
)


class Patch(NamedTuple):
    file: str
    """Below src/fumehood."""
    old: str
    new: str


def _plan_without(function: str) -> Patch:
    """Leave one part of the isolation out."""
    return Patch(ISOLATION, f"\n        {function}", f"\n        0 and {function}")


PROTECTIONS: dict[str, list[Patch]] = {
    # System calls and privileges.
    "seccomp": [_plan_without("install_filter(")],
    "landlock": [Patch(f"{GUEST}/landlock.py", 'plan.call("syscall", kernel.SYS_LANDLOCK_RESTRICT_SELF', '0 and (""')],
    "capabilities": [
        Patch(ISOLATION, "for capability in range(last + 1):", "for capability in ():"),
        Patch(ISOLATION, 'plan.call("prctl", kernel.PR_SET_SECUREBITS', '0 and (""'),
        Patch(ISOLATION, 'plan.call("capset"', '0 and (""'),
    ],
    "no-new-privileges": [Patch(ISOLATION, 'plan.call("prctl", kernel.PR_SET_NO_NEW_PRIVS', '0 and (""')],
    "inner-user-namespace": [
        Patch(ISOLATION, 'plan.call("unshare", kernel.CLONE_NEWUSER | kernel.CLONE_NEWCGROUP)', "pass"),
        Patch(ISOLATION, "in user_map_files(SANDBOX_UID, uid, uid):", "in ():"),
    ],
    "stepping-down": [
        Patch(CELL, "kernel.setns(namespace, kernel.CLONE_NEWUSER)", "pass"),
        Patch(ISOLATION, "if uid:", "if 0:"),
    ],
    # Namespaces.
    "cgroup-namespace": [
        Patch(ISOLATION, "kernel.CLONE_NEWUSER | kernel.CLONE_NEWCGROUP", "kernel.CLONE_NEWUSER"),
    ],
    "uts-namespace": [
        Patch(CELL, "| kernel.CLONE_NEWUTS", ""),
        Patch(CELL, "socket.sethostname(_HOSTNAME)", "pass"),
    ],
    "run-network-namespace": [Patch(ISOLATION, "| kernel.CLONE_NEWNET |", "|")],
    "network-namespace": [
        Patch(ISOLATION, "| kernel.CLONE_NEWNET |", "|"),
        Patch(ISOLATION, 'plan.call("ioctl", descriptor, kernel.SIOCSIFFLAGS', '0 and (""'),
        Patch(CELL, "kernel.CLONE_NEWNET | ", ""),
    ],
    "ipc-namespace": [Patch(ISOLATION, "| kernel.CLONE_NEWIPC)", ")")],
    "process-namespace": [
        Patch(f"{GUEST}/supervision.py", "kernel.unshare(kernel.CLONE_NEWPID)", "pass"),
        Patch(f"{GUEST}/supervision.py", "self._nursery.return_to(kernel.CLONE_NEWPID)", "pass"),
        Patch(f"{GUEST}/supervision.py", "_, status, used =", "os.kill(self._process, 9); _, status, used ="),
        Patch(f"{GUEST}/supervision.py", "        self._cgroups.remove()", "        pass"),
    ],
    # Files.
    "minimal-root": [
        Patch(
            f"{NATIVE}/blueprint.py",
            "    interpreter = machine.interpreter\n",
            f"    binds += [_read_only(place) for place in {HOST_PLACES} if os.path.exists(place)]\n"
            "    interpreter = machine.interpreter\n",
        )
    ],
    "synthetic-etc": [
        Patch(f"{NATIVE}/blueprint.py", '"/etc/resolv.conf": "",', '"/etc/resolv.conf": "nameserver 192.0.2.1",'),
        Patch(f"{NATIVE}/blueprint.py", "nobody:x:65534", "somebody:x:1234:1234::/:/bin/sh\\nnobody:x:65534"),
    ],
    "hidden-packages": [Patch(f"{NATIVE}/blueprint.py", "if Path(path).is_dir()]", "if False]")],
    "read-only-root": [
        Patch(ROOTFS, "kernel.MS_BIND | kernel.MS_RDONLY | HARMLESS", "kernel.MS_BIND | HARMLESS"),
    ],
    "read-only-mounts": [Patch(ROOTFS, " | kernel.MOUNT_ATTR_RDONLY", "")],
    "harmless-mounts": [
        Patch(ROOTFS, "HARMLESS = kernel.MS_NOSUID | kernel.MS_NODEV", "HARMLESS = 0"),
        Patch(ROOTFS, "kernel.MOUNT_ATTR_NOSUID", "0"),
        Patch(ROOTFS, "kernel.MOUNT_ATTR_NODEV", "0"),
    ],
    "proc-masks": [Patch(ISOLATION, "for path, cover in masks:", "for path, cover in ():")],
    "read-only-proc-sys": [Patch(ISOLATION, '"/proc/sys", kernel.MOUNT_ATTR_RDONLY)', '"/proc/sys")')],
    "fresh-proc": [
        Patch(ISOLATION, 'plan.call("mount", "proc", "/proc", "proc"', '0 and (""'),
    ],
    "scratch-folders": [
        Patch(
            ROOTFS,
            '"mode=700,size=1m,nr_inodes=100000")',
            '"mode=711,size=1m,nr_inodes=100000")\n    for place in ("/tmp", "/dev/shm"):\n'
            '        kernel.mount("shared", place, "tmpfs", HARMLESS, "mode=1777,size=8m")\n',
        ),
        Patch(ISOLATION, '(("tmp", "/tmp", 0o1777), ("shm", "/dev/shm", 0o1777), ', "("),
        Patch(ISOLATION, '("run", RUN_FOLDER, 0o755)):', '("run", RUN_FOLDER, 0o755),):'),
    ],
    "workspaces": [Patch(f"{NATIVE}/cells.py", "workspace = next(self._workspaces)", "workspace = 1")],
    "cells-by-policy": [Patch(f"{NATIVE}/cells.py", "self._cells.get(key)", "next(iter(self._cells.values()), None)")],
    # What comes from the host, or from the machinery.
    "empty-environment": [
        Patch(f"{NATIVE}/cells.py", 'env={"LC_ALL": "C.UTF-8"}', "env=None"),
        Patch(f"{GUEST}/program.py", "os.environ.clear()", "pass"),
    ],
    "descriptors-closed": [
        Patch(f"{NATIVE}/cells.py", "pass_fds=(control, *opened)", "close_fds=False"),
        Patch(
            f"{NATIVE}/cells.py",
            "return subprocess.Popen(",
            "return [os.set_inheritable(number, True) for number in (control, *opened)] and subprocess.Popen(",
        ),
        Patch(ISOLATION, 'plan.call("syscall", kernel.SYS_CLOSE_RANGE', '0 and (""'),
        Patch(f"{GUEST}/program.py", "os.closerange(3, _MOST_DESCRIPTORS)", "pass"),
    ],
    "host-forgotten": [
        Patch(CELL, "os.setsid()", "pass"),
        Patch(ISOLATION, 'plan.call("setsid")', "pass"),
        Patch(CELL, "signal.pthread_sigmask(signal.SIG_SETMASK, [])", "pass"),
        Patch(CELL, "in signal.valid_signals() - ", "in set() - "),
        Patch(f"{GUEST}/program.py", "os.umask(0o022)", "pass"),
        Patch(f"{GUEST}/program.py", 'os.chdir(os.path.join(WORKSPACE, request["cwd"]))', "pass"),
        Patch(f"{NATIVE}/cells.py", 'cwd="/",', ""),
    ],
    "randomness": [Patch(f"{GUEST}/program.py", "randomness.renew()", "pass")],
    "notes-checked": [
        Patch(f"{GUEST}/ending.py", 'kind if kind in ("memory", "disk", "processes") else ""', '"memory"'),
        Patch(f"{GUEST}/supervision.py", "None if status == 0 else self._trouble(others)", "self._trouble(others)"),
        Patch("backends/verdict.py", "if code == 0:", "if 0:"),
    ],
    "text-encoded": [
        Patch(f"{RUNS}/descriptors.py", "list(request.arguments)", "' '.join(request.arguments).split()"),
    ],
    # Limits.
    "cgroups": [_plan_without("_join_cgroups(")],
    "rlimits": [
        Patch(ISOLATION, "in _rlimits(limits):", "in ():"),
        Patch(ISOLATION, 'plan.call("setrlimit", resource.RLIMIT_NPROC', '0 and (""'),
    ],
    "disk-limits": [
        Patch(ISOLATION, "size={limits['disk_bytes']},nr_inodes={limits['inodes']}", "size=1g"),
        Patch(ROOTFS, "size={limits['workspace_bytes']},nr_inodes={limits['inodes']}", "size=1g"),
    ],
    "output-limit": [
        Patch(f"{NATIVE}/execution.py", "if len(data) > self._room:", "if 0:"),
        Patch(f"{NATIVE}/execution.py", "data[: self._room]", "data"),
    ],
    "wall-time": [Patch(f"{GUEST}/supervision.py", '+ message["timeout"]', '+ message["timeout"] + 1000')],
}  # fmt: skip

# Without these alone no run would start: what follows them needs them.
ONLY_TOGETHER = {"no-new-privileges", "inner-user-namespace", "stepping-down"}

# Several walls around the same thing: these are seen through only when all of them are down.
COMBINATIONS: list[tuple[str, ...]] = [
    ("seccomp", "capabilities"),
    ("seccomp", "no-new-privileges"),
    ("seccomp", "capabilities", "landlock"),
    ("read-only-root", "landlock"),
    ("read-only-mounts", "landlock"),
    ("network-namespace", "landlock"),
    ("run-network-namespace", "landlock"),
    ("inner-user-namespace", "capabilities", "landlock"),
    ("inner-user-namespace", "capabilities", "landlock", "seccomp"),
    ("minimal-root", "landlock"),
    ("fresh-proc", "landlock"),
    ("process-namespace", "fresh-proc", "landlock"),
    ("cgroups", "rlimits"),
    ("disk-limits", "rlimits"),
    # The program is the host's root, in namespaces of its own. What the attacks get then is harmless by design.
    (
        *("stepping-down", "inner-user-namespace", "capabilities", "no-new-privileges", "seccomp", "landlock"),
        *("rlimits", "read-only-mounts", "read-only-root", "read-only-proc-sys", "harmless-mounts", "proc-masks"),
    ),
]
