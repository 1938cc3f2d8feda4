"""Every protection that the attacks are aimed at, and how to take it out of a copy of the source.

A patch replaces one piece of text in one file. A piece that is not there any more is an error: then the protection has
moved, and this list has to follow.
"""

from __future__ import annotations

from typing import NamedTuple

GUEST, NATIVE, RUNS = "guest", "backends/native", "backends/runs"
ISOLATION, ROOTFS, CELL = f"{GUEST}/isolation/run.py", f"{GUEST}/isolation/rootfs.py", f"{GUEST}/cell/main.py"
PROGRAM, ENDING, SERVICE = f"{GUEST}/program/start.py", f"{GUEST}/program/shutdown.py", f"{GUEST}/cell/service.py"
CELL_SPEC, CELLS, PRESTART = f"{NATIVE}/cell_spec.py", f"{NATIVE}/cells.py", f"{NATIVE}/prestart.py"
LANDLOCK, SUPERVISION = f"{GUEST}/isolation/landlock.py", f"{GUEST}/cell/supervision.py"
TEMPLATE = f"{GUEST}/cell/template.py"
RUN_IO = f"{RUNS}/run_io.py"

# What a root that is not minimal would show.
HOST_PLACES = (
    *("/var/tmp", "/var/lib", "/var/log", "/home/root", "/opt", "/srv", "/mnt", "/media", "/boot", "/sys"),
    *("/root/.bashrc", "/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/ssh", "/etc/ssl", "/etc/machine-id"),
    *("/etc/hostname", "/dev/kmsg", "/dev/vda", "/dev/kvm", "/dev/fuse", "/dev/net", "/dev/mem"),
)
ACCESS, ARCHIVE, BUNDLE = "ingress/access.py", "sandbox/archive.py", "notebook_output/bundle.py"
_ADMIT_AS_IT_IS = """def _admitted(self, request: HttpRequest, path: str) -> Admitted:
        return Admitted(request.target, request.headers)

    def _unused(self, request: HttpRequest, path: str)"""


class Patch(NamedTuple):
    file: str
    """Below src/fumehood."""
    old: str
    new: str


def _plan_without(function: str) -> Patch:
    """Leave one part of the isolation out."""
    return Patch(ISOLATION, f"\n        {function}", f"\n        0 and {function}")


PROTECTIONS: dict[str, list[Patch]] = {
    # What goes out. Of the gateway's decisions only this one: without the others packets would leave the machine.
    "requests-judged": [
        Patch("policy/egress/rulebook.py", "if not rules:\n            return _ch", "if True:\n            return _ch")
    ],
    # What comes in.
    "port-token": [Patch(ACCESS, "return hmac.compare_digest(", "return True or hmac.compare_digest(")],
    "port-host": [Patch(ACCESS, "if host not in self._hosts:", "if False:")],
    "port-origin": [Patch(ACCESS, "if reason := _from_elsewhere(request.headers, host):", "if reason := '':")],
    "port-token-stripped": [Patch(ACCESS, "def _admitted(self, request: HttpRequest, path: str)", _ADMIT_AS_IT_IS)],
    "port-cookies-kept-apart": [Patch(ACCESS, "if not _is_token_cookie(value)", "")],
    "port-framing-strict": [
        Patch("egress/http1.py", 'raise MalformedMessageError("it says more than once how long', 'print("twice')
    ],
    "loopbacks-apart": [
        Patch(f"{GUEST}/cell/loopbacks.py", "if not self._are_shared:\n            return True", "return True")
    ],
    "ports-make-room": [Patch("ingress/server.py", "self._gateway.connections.holders.add(self)", "pass")],
    "archive-paths": [Patch("snapshots/manifest.py", "in name for name in names):", "in name for name in ()):")],
    "archive-links": [Patch(ARCHIVE, "if not stays_inside(path, info.linkname):", "if False:")],
    "archive-set-uid": [Patch(ARCHIVE, "if info.mode & 0o6000:", "if False:")],
    "archive-metered": [Patch(ARCHIVE, "if self._left < 0:", "if False:")],
    "archive-folders-charged": [Patch(ARCHIVE, "len(above) + is_new > self._most_entries:", "0 > 10**9:")],
    "store-charged": [
        Patch("snapshots/limits.py", "return (size_bytes // _BLOCK_BYTES + 1) * _BLOCK_BYTES", "return size_bytes")
    ],
    # What goes out to a person.
    "export-links": [Patch(ARCHIVE, " and not _leads_out(e)]", "]")],
    "notebook-html": [Patch(BUNDLE, "bundle[_HTML] = harmless_html(markup)", "bundle[_HTML] = markup")],
    "notebook-formulas": [
        Patch("notebook_output/html.py", '_MATH = re.compile(r"\\$|\\\\++")', '_MATH = re.compile("x^")')
    ],
    "notebook-kinds": [Patch(BUNDLE, "    return bundle\n", "    return {**data, **bundle}\n")],
    # System calls and privileges.
    "seccomp": [Patch(SERVICE, "install_filter(program, gate)", "pass")],
    "gate-closed": [_plan_without("_close_gate(")],
    "namespace-limit": [Patch(ISOLATION, '"max_user_namespaces": 0, ', "")],
    "landlock": [Patch(LANDLOCK, 'plan.call("syscall", kernel.SYS_LANDLOCK_RESTRICT_SELF', '0 and (""')],
    "capabilities": [
        Patch(ISOLATION, "for capability in range(last + 1):", "for capability in ():"),
        Patch(ISOLATION, 'plan.call("prctl", kernel.PR_SET_SECUREBITS', '0 and (""'),
        Patch(ISOLATION, 'plan.call("capset"', '0 and (""'),
    ],
    "no-new-privileges": [Patch(ISOLATION, 'plan.call("prctl", kernel.PR_SET_NO_NEW_PRIVS', '0 and (""')],
    "inner-user-namespace": [
        Patch(ISOLATION, 'plan.call("unshare", kernel.CLONE_NEWUSER | kernel.CLONE_NEWCGROUP)', "pass"),
        Patch(ISOLATION, "in user_map_files(SANDBOX_UID, uid, uid):", "in ():"),
        _plan_without("_limit_namespace("),
    ],
    "user-map": [
        Patch(ISOLATION, "in user_map_files(SANDBOX_UID, uid, uid):", "in (('/proc/self/setgroups', 'deny'),):"),
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
        Patch(TEMPLATE, "self._part_processes.make()", "pass"),
        Patch(TEMPLATE, "self._rejoin_processes.make()", "pass"),
        Patch(
            SUPERVISION,
            "return self._forker.template.bury(self._process)",
            "os.kill(self._process, 9); return self._forker.template.bury(self._process)",
        ),
        Patch(SUPERVISION, "        self._cgroups.remove()", "        pass"),
    ],
    # Files.
    "minimal-root": [
        Patch(
            CELL_SPEC,
            "    links |= _interpreter_links(facts)",
            f"    binds += [_read_only(place) for place in {HOST_PLACES} if os.path.exists(place)]\n"
            "    links |= _interpreter_links(facts)",
        ),
        Patch(CELL_SPEC, '    "/var/tmp": "../tmp",', "    #"),
    ],
    "synthetic-etc": [
        Patch(CELL_SPEC, '"/etc/resolv.conf": "",', '"/etc/resolv.conf": "nameserver 192.0.2.1",'),
        Patch(CELL_SPEC, '"/etc/hosts": "', '"/etc/hosts": "192.0.2.7 example.com\\n'),
        Patch(CELL_SPEC, "nobody:x:65534", "somebody:x:1234:1234::/:/bin/sh\\nnobody:x:65534"),
    ],
    "interpreter-alone": [Patch(CELL_SPEC, "[_read_only(prefix)]", "[_read_only(str(Path(prefix).parent))]")],
    "files-mounted-alone": [
        Patch(
            CELL_SPEC,
            '        binds.append({"source": source,',
            "        if os.path.isfile(source):\n"
            "            folder, place = os.path.dirname(source), os.path.dirname(mount.target)\n"
            '            rest = {"mode": "rw", "executes": True, "owner": None}\n'
            '            binds.append({"source": folder, "target": place, **rest})\n'
            '        binds.append({"source": source,',
        ),
    ],
    "sockets-refused": [Patch("backends/mounts.py", "if search.socket is not None:", "if 0:")],
    "mounts-by-owner": [Patch(ROOTFS, 'if entry["owner"] is not None:', "if 0:")],
    "hidden-packages": [Patch(CELL_SPEC, "package_commands.covers(interpreter)", "{}")],
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
    "hidden-processes": [Patch(ISOLATION, '"hidepid=2"', '"hidepid=0"')],
    # What lies below the cell's own /proc is the host's.
    "proc-of-the-host": [
        Patch(
            ISOLATION,
            'plan.call("mount", "proc", "/proc", "proc", HARMLESS | kernel.MS_NOEXEC, "hidepid=2")',
            'plan.call("umount2", "/proc", kernel.MNT_DETACH)',
        ),
    ],
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
    "workspaces": [Patch(CELLS, "workspace = next(self._workspaces)", "workspace = 1")],
    "workspaces-removed": [
        Patch(SERVICE, 'self._workspaces.discard(message["workspace"])', "pass"),
        Patch(SERVICE, 'rootfs.unmount_shared(rootfs.workspace_place(message["workspace"]))', "pass"),
    ],
    "workspaces-kept": [
        Patch(
            SERVICE,
            "if identifier not in self._workspaces:",
            "if identifier in self._workspaces:\n"
            "            rootfs.unmount_shared(rootfs.workspace_place(identifier))\n"
            "        if True:",
        ),
    ],
    "moving-in": [Patch(SUPERVISION, "self.workspace == workspace:", "self.workspace is not None:")],
    "moving-out": [Patch(SUPERVISION, "                kernel.unmount(target)", "                pass")],
    "kept-tmp": [
        Patch(ROOTFS, 'return f"{RUN_FOLDER}/{identifier}.tmp"', 'return f"{RUN_FOLDER}/all.tmp"'),
        Patch(SERVICE, "if identifier not in self._tmps:", "if not self._tmps:"),
        Patch(SERVICE, 'self._tmps.discard(message["workspace"])', "pass"),
        Patch(SERVICE, "rootfs.unmount_shared(rootfs.tmp_place(", "str(str("),
    ],
    "kept-tmp-confined": [Patch(f"{GUEST}/files/service.py", "return self._tmp, path.removeprefix(_TMP)", "pass")],
    "uploads-confined": [Patch(f"{GUEST}/files/service.py", "is_confined=True", "is_confined=False")],
    # As if the service opened paths by their names, as most programs do.
    "paths-walked": [
        Patch(
            f"{GUEST}/files/resolution.py",
            "            name = _Search(place, trail, follow, make_parents).resolve(path)\n"
            "            yield Spot(trail.folder, name)\n",
            "            target = os.path.join(place.path, path)\n"
            "            with suppress(OSError):\n"
            "                target = os.path.realpath(target)\n"
            "            folder = os.open(os.path.dirname(target), os.O_RDONLY)\n"
            "            try:\n"
            "                yield Spot(folder, os.path.basename(target))\n"
            "            finally:\n"
            "                os.close(folder)\n",
        )
    ],
    "cells-by-policy": [Patch(CELLS, "self._cells.get(key)", "next(iter(self._cells.values()), None)")],
    # What may be executed, where the policy names it.
    "named-executables": [
        Patch(LANDLOCK, "if self._executables is None and self._hidden is None:", "if True:")
    ],
    "written-files-not-executed": [
        Patch(LANDLOCK, "executing = _EXECUTE if", "executing = 0 if"),
        Patch(ISOLATION, "flags = HARMLESS if executable else", "flags = HARMLESS if True else"),
        Patch(ROOTFS, "HARMLESS if executable else", "HARMLESS if True else"),
        Patch("backends/executables.py", "if named is None:", "if True:"),
    ],
    "no-code-from-memory": [
        Patch(f"{GUEST}/isolation/seccomp/__init__.py", "if executes_files_only else", "if 0 else"),
    ],
    # What comes from the host, or from the machinery.
    "empty-environment": [
        Patch(PRESTART, 'env={"LC_ALL": "C.UTF-8"}', "env=None"),
        Patch(PROGRAM, "os.environ.clear()", "pass"),
    ],
    # The machinery's channel, and one descriptor of the host's that can be inherited, stay open.
    "displays-charged": [
        Patch(f"{RUNS}/session_io.py", "cost = size + _DISPLAY_BYTES", "cost = _DISPLAY_BYTES"),
        Patch(f"{RUNS}/session_io.py", "more = max(0, values * _VALUE_BYTES - len(text))", "more = 0"),
    ],
    "messages-expected": [
        Patch(f"{RUNS}/session_io.py", "elif body or is_charged or not self._is_expected(header):", "elif 0:"),
    ],
    "own-imports": [
        Patch(PROGRAM, "sys.path += module_path", "sys.path[:] = [WORKSPACE, *sys.path, *module_path]"),
        Patch(f"{GUEST}/files/service.py", "    service = _Service(", "    import colorsys\n    service = _Service("),
    ],
    "descriptors-closed": [
        Patch(
            PRESTART,
            "pass_fds=(control, folder, host)",
            "pass_fds=(control, folder, host, *[os.dup2(number, 200) for number in range(3, 200)"
            " if os.path.exists(f'/proc/self/fd/{number}') and os.get_inheritable(number)][:1])",
        ),
        Patch(ISOLATION, 'plan.call("dup3", copy, number, os.O_CLOEXEC)', 'plan.call("dup3", copy, number, 0)'),
        Patch(ISOLATION, "kernel.SYS_CLOSE_RANGE, end, 0xFFFFFFFF, 0", "kernel.SYS_CLOSE_RANGE, end, 199, 0"),
        Patch(f"{GUEST}/isolation/descriptors.py", "os.closerange(len(descriptors), _END_OF_DESCRIPTORS)", "pass"),
    ],
    "own-session": [Patch(ISOLATION, 'plan.call("setsid")', "pass")],
    "command-line-renamed": [
        Patch(CELL, "kernel.rename_process([sys.executable])", "pass"),
        Patch(PRESTART, "map(int, sys.argv[1:])", "map(int, sys.argv[1:5])"),
        Patch(PRESTART, "patience_ms))],", "patience_ms, Path(fumehood.guest.__file__).parent))],"),
    ],
    "host-forgotten": [
        Patch(CELL, "os.setsid()", "pass"),
        Patch(ISOLATION, 'plan.call("setsid")', "pass"),
        Patch(CELL, "signal.pthread_sigmask(signal.SIG_SETMASK, [])", "pass"),
        Patch(CELL, "in signal.valid_signals() - ", "in set() - "),
        Patch(PROGRAM, "os.umask(0o022)", "pass"),
    ],
    "own-folder": [
        Patch(PROGRAM, 'os.chdir(os.path.join(WORKSPACE, request["cwd"]))', "pass"),
        Patch(PRESTART, 'cwd="/",', ""),
    ],
    "randomness": [Patch(PROGRAM, "randomness.renew()", "pass")],
    "notes-checked": [
        Patch(ENDING, 'kind if kind in ("memory", "disk", "processes") else ""', '"memory"'),
        Patch(SUPERVISION, "None if status == 0 else self._trouble(others)", "self._trouble(others)"),
        Patch("backends/outcome.py", "if code == 0:", "if 0:"),
    ],
    "notes-of-any-kind": [
        Patch(
            ENDING,
            'except OSError:\n        return ""\n    return kind',
            'except FileNotFoundError:\n        return ""\n    return kind',
        ),
    ],
    "answers-apart": [
        Patch(
            RUN_IO,
            "        data = data[: self._charge(len(data))]\n",
            "        for line in data.splitlines():\n            if line.startswith(b'{\"status\"'):\n"
            "                self.told = json.loads(line)\n        data = data[: self._charge(len(data))]\n",
        ),
        Patch(f"{RUNS}/execution.py", "= self._io.answer\n", "= getattr(self._io, 'told', self._io.answer)\n"),
    ],
    "streams-apart": [Patch(f"{RUNS}/descriptors.py", "self.streams[read] = stream", "self.streams[read] = 1")],
    "output-as-bytes": [
        Patch(
            RUN_IO,
            "data = data[: self._charge(len(data))]",
            "data = data[: self._charge(len(data))].decode('utf-8', 'replace').encode()",
        ),
    ],
    "pipes-that-never-block": [Patch(f"{RUNS}/descriptors.py", "os.set_blocking(read, False)", "pass")],
    "exit-codes-in-range": [
        Patch(ENDING, "return code & 0xFF if", "return code if"),
        Patch(PROGRAM, "leave(code & 0xFF)", "leave(code)"),
    ],
    "every-signal-known": [Patch("backends/outcome.py", 'f"SIGRTMIN+{number - signal.SIGRTMIN}"', '""')],
    "children-of-its-own": [
        Patch(f"{GUEST}/contract/syscalls/arguments.py", "_NEW_NAMESPACES | _SIBLING", "_NEW_NAMESPACES"),
    ],
    "refusals-told": [Patch(f"{GUEST}/cell/standby.py", 'wire.send(channel, {"refused": str(error)})', "pass")],
    "failed-starts-told": [
        Patch(PROGRAM, "except OSError as error:\n        _fail(", "except ConnectionError as error:\n        _fail("),
    ],
    "text-encoded": [
        Patch(f"{RUNS}/descriptors.py", "list(request.arguments)", "' '.join(request.arguments).split()"),
        Patch(
            f"{RUNS}/descriptors.py",
            "dict(request.environment)",
            "dict(line.partition('=')[::2] for line in"
            " '\\n'.join(map('='.join, request.environment.items())).split('\\n') if line)",
        ),
    ],
    "text-checked": [Patch("sandbox/request.py", "if len(_encoded(text, what)) > _MAX_ARGUMENT_BYTES:", "if 0:")],
    "scripts-by-path": [
        Patch(PROGRAM, "(descriptor)\n    return path", "(descriptor)\n    os.chdir(RUN_FOLDER)\n    return name"),
    ],
    "request-before-source": [
        Patch(
            f"{GUEST}/contract/wire.py",
            'header, _, body = data.partition(b"\\n")',
            'header, body = [line for line in data.splitlines() if line[:1] == b"{"][-1], data.partition(b"\\n")[2]',
        ),
    ],
    "requests-unread": [
        Patch(
            SERVICE,
            "self._waiting.append((message, descriptors))",
            "self._waiting.append((message, descriptors)); RunTemplate.read = "
            "getattr(RunTemplate, 'read', b'') + wire.read_sealed_file(descriptors[1])[1]",
        ),
        Patch(TEMPLATE, "[_WISH.pack(_FORK, how, 0)]", "[_WISH.pack(_FORK, how, 0), getattr(self, 'read', b'')]"),
        Patch(TEMPLATE, "receive(_WISH.size, ", "receive(60_000, "),
        Patch(
            TEMPLATE,
            "_WISH.unpack(data)",
            "_WISH.unpack(data[: _WISH.size]); vars(self).setdefault('read', []).append(data)",
        ),
    ],
    # Limits.
    "cgroups": [_plan_without("_join_cgroups(")],
    "rlimits": [
        Patch(ISOLATION, "in _rlimits(limits):", "in ():"),
        Patch(ISOLATION, 'plan.call("setrlimit", resource.RLIMIT_NPROC', '0 and (""'),
    ],
    "terminals-counted": [Patch(ISOLATION, ",max={MOST_TERMINALS}", "")],
    "watches-counted": [Patch(ISOLATION, "for name in _WATCH_LIMITS}", "for name in ()}")],
    "disk-size": [
        Patch(ISOLATION, "size={limits['disk_bytes']},", "size=1g,"),
        Patch(ROOTFS, "size={size},", "size=1g,"),
    ],
    "disk-limits": [
        Patch(ISOLATION, "size={limits['disk_bytes']},nr_inodes={limits['inodes']}", "size=1g"),
        Patch(ROOTFS, "size={size},nr_inodes={limits['inodes']}", "size=1g"),
    ],
    "output-limit": [
        Patch(RUN_IO, "if size > self._room:", "if 0:"),
        Patch(RUN_IO, "granted = min(size, self._room)", "granted = size"),
    ],
    "recursion-limit": [Patch(PROGRAM, "gc.enable()\n", "gc.enable()\n        sys.setrecursionlimit(10**9)\n")],
    "survivors-counted": [Patch(SUPERVISION, "return len(listed.split())", "return 0")],
    "wall-time": [Patch(SUPERVISION, '(message["timeout"], ', '(message["timeout"] + 1000, ')],
}  # fmt: skip

# The program is the host's root, in namespaces of its own. What the attacks get then is harmless by design.
PROTECTIONS["real-root"] = [
    patch
    for name in (
        *("stepping-down", "inner-user-namespace", "capabilities", "no-new-privileges", "seccomp", "landlock"),
        *("rlimits", "read-only-mounts", "read-only-root", "read-only-proc-sys", "harmless-mounts", "proc-masks"),
    )
    for patch in PROTECTIONS[name]
]

# Without these alone no run would start: what follows them needs them.
ONLY_TOGETHER = {"no-new-privileges", "inner-user-namespace", "stepping-down"}

# Not for all attacks (as for pytest -k). Others would find what is not theirs to touch, or trip over the difference.
AIMED_AT = {
    "proc-of-the-host": "test_only_own_processes_are_in_proc or test_the_process_numbers_of_the_host",
    "own-folder": "test_the_current_folder",
}

# Several walls around the same thing: these are seen through only when all of them are down.
COMBINATIONS: list[tuple[str, ...]] = [
    ("seccomp", "capabilities"),
    ("seccomp", "no-new-privileges", "landlock"),
    ("seccomp", "capabilities", "landlock"),
    ("read-only-root", "landlock"),
    ("named-executables", "written-files-not-executed"),
    ("read-only-mounts", "landlock"),
    ("network-namespace", "landlock"),
    ("run-network-namespace", "landlock"),
    ("inner-user-namespace", "capabilities", "landlock"),
    ("inner-user-namespace", "capabilities", "landlock", "seccomp"),
    ("minimal-root", "landlock"),
    ("minimal-root", "paths-walked"),
    ("fresh-proc", "landlock"),
    ("process-namespace", "landlock"),
    ("process-namespace", "fresh-proc", "landlock"),
    ("cgroups", "rlimits"),
    ("disk-limits", "rlimits"),
    ("real-root", "minimal-root"),
    ("user-map", "capabilities", "landlock"),
    ("own-session", "landlock"),
    ("workspaces", "workspaces-removed"),
]
