"""Trials of each layer of the native backend by itself: an attack that the layer alone refuses, or its state.

Several layers stand behind each other there. An attack on a control is stopped while one of them holds; what these
trials see is that all of them do. In containers and virtual machines the layers are those of the engine and the kernel.
"""

from __future__ import annotations

import json
import os
import platform
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import fumehood
from fumehood.host.interpreter import own_interpreter
from fumehood.proof.laboratory import Laboratory, require_native
from fumehood.proof.program import require_refusals
from fumehood.proof.trial import BrokenError, NotTestedError, Trial, attack

_PACKAGE = os.path.dirname(os.path.abspath(fumehood.__file__))
_WRITABLE = frozenset({"/proc", "/run", "/tmp", "/dev/shm", "/dev/pts", "/workspace"})
_DEVICES = ("/dev/", "/proc/")
_FACTS_OF_THE_HOST = (
    *("cmdline", "config.gz", "diskstats", "interrupts", "kallsyms", "kcore", "keys", "kmsg", "locks", "modules"),
    *("partitions", "slabinfo", "timer_list", "vmallocinfo"),
)
_PLACES_OF_THE_HOST = (
    *("/sys", "/boot", "/srv", "/mnt", "/opt", "/etc/shadow", "/etc/machine-id", "/etc/ssh", "/dev/kmsg"),
)
_FOLDERS_OF_THE_HOST = ("acpi", "bus", "driver", "fs", "irq", "tty")
_READ_JSON = """
def fields():
    with open("/proc/self/status") as file:
        return dict(line.rstrip("\\n").split(":\\t", 1) for line in file if ":\\t" in line)

def report(**facts):
    attempt("facts", lambda: None)
    tried["facts"] = json.dumps(facts)
"""


async def _facts(lab: Laboratory, code: str, **known: object) -> dict[str, Any]:
    require_native(lab)
    tried = await lab.attempts(_READ_JSON + code, **known)
    found: dict[str, Any] = json.loads(tried["facts"])
    return found


def _require(found: Mapping[str, object], expected: Mapping[str, object], held: str) -> str:
    if wrong := [f"{name} is {found.get(name)!r}" for name, value in expected.items() if found.get(name) != value]:
        raise BrokenError("; ".join(wrong))
    return held


@attack("privileges", "Find a capability in any set, a second user in the map, or privileges that can be had again.")
async def find_privileges(lab: Laboratory) -> str:
    found = await _facts(
        lab,
        """
import resource
status = fields()
names = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs")
users = [open(f"/proc/self/{kind}_map").read().split()[::2] for kind in ("uid", "gid")]
groups = [status["Groups"].strip(), open("/proc/self/setgroups").read().strip()]
nested = open("/proc/sys/user/max_user_namespaces").read().strip()
report(**{name: status[name] for name in names}, users=users, groups=groups, nested=nested)
""",
    )
    sets = dict.fromkeys(("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"), "0" * 16)
    one_user = {"users": [["1000", "1"], ["1000", "1"]], "groups": ["", "deny"], "nested": "0"}
    held = "no capability in any of five sets; no new privileges; one user, no groups, no further namespaces"
    return _require(found, {**sets, "NoNewPrivs": "1", **one_user}, held)


@attack("system calls", "Run without the filter, or add one that the sandbox did not choose.")
async def be_without_a_filter(lab: Laboratory) -> str:
    found = await _facts(lab, 'report(mode=fields()["Seccomp"], filters=fields()["Seccomp_filters"])')
    return _require(found, {"mode": "2", "filters": "1"}, "one filter is in force (seccomp mode 2)")


@attack("system calls", "Find the code with which the cell gets past the filter in memory that belongs to no file.")
async def find_the_gate(lab: Laboratory) -> str:
    instruction = _SYSTEM_CALL.get(platform.machine())
    if instruction is None:
        raise NotTestedError(f"the instruction for system calls on {platform.machine()} is not known to the trial")
    code = """
def content(area):
    start, end = (int(edge, 16) for edge in area.split("-"))
    with open("/proc/self/mem", "rb", 0) as memory:
        memory.seek(start)
        return memory.read(end - start)

with open("/proc/self/maps") as maps:
    lines = [line.split() for line in maps]
areas = [line[0] for line in lines if line[1].startswith("r-x") and len(line) < 6]
report(gates=[area for area in areas if instruction in content(area)])
"""
    found = await _facts(lab, code, instruction=instruction)
    return _require(found, {"gates": []}, "no executable memory without a file has an instruction for system calls")


_SYSTEM_CALL = {"x86_64": b"\x0f\x05", "aarch64": b"\x01\x00\x00\xd4"}


@attack(
    "filesystem",
    "Write to a file of /proc that belongs to the program itself, which Landlock alone refuses.",
    admitted=("no Landlock behind it",),
)
async def write_past_landlock(lab: Laboratory) -> str:
    require_native(lab)
    code = """
    def spare():
        with open("/proc/self/oom_score_adj", "w") as file:
            return file.write("999")

    attempt("the own score for the out-of-memory killer", spare)
    """
    return require_refusals(await lab.attempts(code), ["the own score for the out-of-memory killer"])


@attack("filesystem", "Find a mount that can be written, honours set-uid programs or devices, and should not.")
async def find_a_weak_mount(lab: Laboratory) -> str:
    found = await _facts(lab, 'report(mounts=[line.split()[4:6] for line in open("/proc/self/mountinfo")])')
    listed: list[tuple[str, str]] = found["mounts"]
    mounts = {place: flags.split(",") for place, flags in listed}
    own = _WRITABLE | {mount.target for mount in lab.policy.filesystem.mounts if mount.mode == "rw"}
    weak = [f"{place} can be written" for place, flags in mounts.items() if "rw" in flags and place not in own]
    weak += [f"{place} honours set-uid programs" for place, flags in mounts.items() if "nosuid" not in flags]
    # The few device nodes are mounted one by one.
    weak += [
        f"{place} honours devices"
        for place, flags in mounts.items()
        if "nodev" not in flags and not place.startswith(_DEVICES)
    ]
    if "ro" not in mounts.get("/proc/sys", ()):
        weak.append("/proc/sys can be written")
    if weak:
        raise BrokenError("; ".join(weak))
    return f"{len(mounts)} mounts: read-only but for {', '.join(sorted(own & mounts.keys()))}; none with set-uid"


@attack("filesystem", "Read facts about the host from /proc, and list what lies beside the system in the root.")
async def read_facts_of_the_host(lab: Laboratory) -> str:
    found = await _facts(
        lab,
        """
def content(name):
    try:
        with open("/proc/" + name, "rb") as file:
            return len(file.read(64))
    except OSError:
        return 0

def entries(name):
    try:
        return len(os.listdir("/proc/" + name))
    except OSError:
        return 0

report(
    told=[name for name in names if content(name)],
    listed=[name for name in folders if entries(name)],
    there=[place for place in places if os.path.lexists(place)],
    accounts=len(open("/etc/passwd").readlines()),
    servers=open("/etc/resolv.conf").read() if gateway_is_off else "",
    beside=[name for place in ways for name in os.listdir(place) if name not in steps],
)
""",
        names=_FACTS_OF_THE_HOST,
        folders=_FOLDERS_OF_THE_HOST,
        places=_PLACES_OF_THE_HOST,
        gateway_is_off=not lab.policy.network.allow,
        ways=[str(way) for way in _WAYS_TO_THE_INTERPRETER],
        steps=[step.name for step in (_PREFIX, *_WAYS_TO_THE_INTERPRETER)],
    )
    if found.pop("accounts") > _MOST_ACCOUNTS:
        raise BrokenError("the accounts of the host are listed")
    held = (
        f"{len(_FACTS_OF_THE_HOST)} files and {len(_FOLDERS_OF_THE_HOST)} folders of /proc were closed; none of "
        f"{len(_PLACES_OF_THE_HOST)} places of the host, of its accounts or name servers was there"
    )
    return _require(found, {"told": [], "listed": [], "there": [], "servers": "", "beside": []}, held)


_MOST_ACCOUNTS = 3
_PREFIX = Path(own_interpreter().prefix)
# Folders above the interpreter, in which nothing else of the host may be. That of the system is mounted whole.
_WAYS_TO_THE_INTERPRETER: Sequence[Path] = () if _PREFIX.is_relative_to("/usr") else _PREFIX.parents[:-1]


@attack("processes", "See process 1, learn the host's name, and where in its cgroups the program is.")
async def see_around(lab: Laboratory) -> str:
    found = await _facts(
        lab,
        """
report(
    processes=len([name for name in os.listdir("/proc") if name.isdigit()]),
    is_named_alike=host in (os.uname().nodename, socket.gethostname()),
    cgroups=sorted({line.strip().split(":", 2)[2] for line in open("/proc/self/cgroup")}),
    folder=package in open("/proc/self/cmdline").read() + " ".join(sys.orig_argv),
)
""",
        host=socket.gethostname(),
        package=_PACKAGE,
    )
    expected = {"processes": 1, "is_named_alike": False, "cgroups": ["/"], "folder": False}
    return _require(found, expected, "the own process alone; another host name; the top of the cgroups it can see")


@attack("runs", "Share a namespace, or numbers drawn at random, with another run of the sandbox.")
async def share_with_another_run(lab: Laboratory) -> str:
    require_native(lab)
    # The first one stays: the kernel gives the numbers of namespaces that are gone to new ones.
    run = await lab.box.start(
        f"import json, os, random, time, uuid\n{_OWN}\nprint(json.dumps(own()), flush=True)\n{_STAY}"
    )
    try:
        output = await run.read(wait=10)
        first: dict[str, str] = json.loads(output.stdout)
        second = await _facts(lab, f"import random, uuid\n{_OWN}\nreport(**own())")
    finally:
        await run.kill()
    shared = {name for name, value in first.items() if second.get(name) == value}
    if lab.policy.network.shares_loopback:
        shared.discard("net")  # what the policy asks for
    if shared:
        raise BrokenError(f"two runs share {', '.join(sorted(shared))}")
    return f"none of: {', '.join(first)}"


_OWN = """
def own():
    spaces = {name: os.readlink("/proc/self/ns/" + name) for name in ("mnt", "pid", "net", "ipc", "user", "cgroup")}
    return {**spaces, "random": str(random.random()), "uuid": str(uuid.uuid4()), "urandom": os.urandom(8).hex()}
"""
_STAY = "time.sleep(60)"


@attack("environment", "Find the host's session, working folder, umask, blocked signals or installed packages.")
async def find_the_callers_process(lab: Laboratory) -> str:
    found = await _facts(
        lab,
        """
import signal, site
report(
    leads_its_session=os.getsid(0) == os.getpid(),
    folder=os.getcwd(),
    umask=os.umask(0),
    blocked=len(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    ignored=sorted(n for n in range(1, 32) if signal.getsignal(n) == signal.SIG_IGN),
    # Of `pip` there is what passes its calls on.
    packages=[n for path in site.getsitepackages() if os.path.isdir(path) for n in os.listdir(path) if n != "pip"],
)
""",
    )
    ignored = {"ignored": [13, 25]}  # SIGPIPE and SIGXFSZ, which Python ignores itself
    expected: dict[str, object] = {
        "leads_its_session": True,
        "folder": "/workspace",
        "umask": 0o022,
        "blocked": 0,
        "packages": [],
    }
    return _require(found, {**expected, **ignored}, "a session of its own in /workspace, ordinary signals, no packages")


@attack("privileges", "Take more terminals, watches, pending signals and core files than a program has use for.")
async def take_what_the_kernel_counts(lab: Laboratory) -> str:
    found = await _facts(
        lab,
        """
import resource
def limit(name):
    return resource.getrlimit(getattr(resource, "RLIMIT_" + name))[1]

terminals = next(line for line in open("/proc/self/mounts") if line.split()[1] == "/dev/pts")
watches = int(open("/proc/sys/user/max_inotify_instances").read())
report(
    terminals="max=" in terminals,
    watches=watches < int(open("/proc/sys/fs/inotify/max_user_instances").read()),
    signals=0 <= limit("SIGPENDING") <= 1024,
    core=limit("CORE") in (0, 1),
    priorities=[limit("NICE"), limit("RTPRIO")],
)
""",
    )
    expected = dict.fromkeys(("terminals", "watches", "signals", "core"), True)
    return _require(found, {**expected, "priorities": [0, 0]}, "each is limited, and priorities cannot be raised")


TRIALS: tuple[Trial, ...] = (
    find_privileges,
    be_without_a_filter,
    find_the_gate,
    write_past_landlock,
    find_a_weak_mount,
    read_facts_of_the_host,
    see_around,
    share_with_another_run,
    find_the_callers_process,
    take_what_the_kernel_counts,
)
