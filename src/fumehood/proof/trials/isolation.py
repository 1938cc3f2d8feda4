"""Trials of processes, privileges, system calls, and what a program inherits."""

from __future__ import annotations

import platform

from fumehood.proof.laboratory import CANARY_VARIABLE, Laboratory
from fumehood.proof.program import require_refusals, require_success
from fumehood.proof.trial import BrokenError, NotTestedError, Trial, attack, use

# Numbers of calls that a program has no use for; each is tried once, with arguments that would do no harm.
_CALLS = {
    "x86_64": {
        "ptrace": 101,
        "mount": 165,
        "add_key": 248,
        "unshare": 272,
        "perf_event_open": 298,
        "setns": 308,
        "bpf": 321,
        "userfaultfd": 323,
        "io_uring_setup": 425,
    },
    "aarch64": {
        "mount": 40,
        "unshare": 97,
        "ptrace": 117,
        "add_key": 217,
        "perf_event_open": 241,
        "setns": 268,
        "bpf": 280,
        "userfaultfd": 282,
        "io_uring_setup": 425,
    },
}


@attack("processes", "See, signal and look into a process of the host.")
async def reach_a_process(lab: Laboratory) -> str:
    with lab.host_process() as number:
        tried = await lab.attempts(
            """
            def is_the_hosts(process):
                try:
                    with open(f"/proc/{process}/cmdline") as file:
                        return mark in file.read()
                except OSError:
                    return False

            own = {int(name) for name in os.listdir("/proc") if name.isdigit()}
            # A process inside may happen to have the same number.
            other = 10**9 if number in own else number
            attempt("signal", lambda: os.kill(other, 0))
            attempt("memory", lambda: read(f"/proc/{other}/environ"))
            attempt("found", lambda: [process for process in own - {os.getpid()} if is_the_hosts(process)])
            attempt("count", lambda: len(own))
            """,
            number=number,
            mark=lab.mark,
        )
    count, found = (tried.pop(name, "not tried").removeprefix("got: ") for name in ("count", "found"))
    if found != "[]" or tried.get("signal") != "refused: ESRCH":
        raise BrokenError(f"the host's process is there: {found}, {tried}")
    seen = "1 process" if count == "1" else f"{count} processes"
    return f"{require_refusals(tried, ['signal', 'memory'])}; it sees {seen}, and not the host's"


@use("processes", "Start a process and wait for it.")
async def start_a_process(lab: Laboratory) -> str:
    code = """
    def fork():
        child = os.fork()
        if child == 0:
            os._exit(7)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    attempt("fork", fork)
    """
    tried = await lab.attempts(code)
    if tried.get("fork") != "got: 7":
        raise BrokenError(str(tried))
    return "a forked process ended with the code it chose"


@attack("privileges", "Become root, take capabilities, make a user namespace, and keep the way to new privileges open.")
async def gain_privileges(lab: Laboratory) -> str:
    tried = await lab.attempts(
        """
        def field(name):
            with open("/proc/self/status") as file:
                return next(line.split()[1] for line in file if line.startswith(name + ":"))

        def user_namespace():
            if libc.unshare(0x10000000) < 0:
                raise OSError(ctypes.get_errno(), "")

        attempt("become root", lambda: os.setuid(0))
        attempt("another host name", lambda: socket.sethostname("hood"))
        attempt("change the root", lambda: os.chroot("/tmp"))
        attempt("user namespace", user_namespace)
        attempt("device", lambda: os.mknod("/tmp/" + mark, stat.S_IFCHR | 0o600, os.makedev(1, 3)))
        facts = {name: field(name) for name in ("CapEff", "CapPrm", "CapBnd")}
        attempt("facts", lambda: facts)
        # Asked of the kernel: gVisor has no line for it in /proc.
        attempt("no new privileges", lambda: libc.prctl(39, 0, 0, 0, 0))
        attempt("uid", lambda: os.getuid())
        """,
        mark=lab.mark,
    )
    facts, uid, closed = tried.pop("facts", ""), tried.pop("uid", ""), tried.pop("no new privileges", "")
    if "'CapEff': '0000000000000000', 'CapPrm': '0000000000000000'" not in facts or closed != "got: 1":
        raise BrokenError(f"it has privileges: {facts}, no new privileges: {closed}")
    names = ["become root", "another host name", "change the root", "user namespace", "device"]
    seen = f"{facts.removeprefix('got: ')}; no new privileges; uid {uid.removeprefix('got: ')}"
    return f"{require_refusals(tried, names)}; {seen}"


@use("privileges", "Change the mode and the times of a file of its own.")
async def own_a_file(lab: Laboratory) -> str:
    code = """
    path = "/tmp/" + mark + "-own"
    write(path)
    os.chmod(path, 0o700)
    attempt("mode", lambda: oct(os.stat(path).st_mode & 0o777))
    attempt("times", lambda: os.utime(path, (0, 0)))
    """
    return require_success(await lab.attempts(code, mark=lab.mark), ["mode", "times"])


@attack(
    "system calls", "Call what programs have no use for: tracing, mounts, keys, namespaces, bpf, io_uring and more."
)
async def call_the_kernel(lab: Laboratory) -> str:
    calls = _CALLS.get(platform.machine())
    if calls is None:
        raise NotTestedError(f"the numbers of system calls on {platform.machine()} are not known to the trial")
    code = """
    empty = ctypes.create_string_buffer(256)
    for name, number in calls.items():
        attempt(name, lambda: call(number, 0, empty, empty, 0, 0))
    """
    tried = await lab.attempts(code, calls=calls)
    # A call that exists answers wrong arguments with EINVAL, EFAULT or EBADF.
    if reached := [f"{name} ({answer})" for name, answer in tried.items() if answer not in _UNREACHED]:
        raise BrokenError(f"the kernel looked at the arguments of: {', '.join(reached)}")
    return require_refusals(tried, calls)


_UNREACHED = ("refused: ENOSYS", "refused: EPERM", "refused: EACCES")


@attack("system calls", "Make a process that is a child of the sandbox's supervisor, not of the program.")
async def give_a_child_away(lab: Laboratory) -> str:
    number = _CLONE.get(platform.machine())
    if number is None:
        raise NotTestedError(f"the number of clone on {platform.machine()} is not known to the trial")
    code = """
    def sibling():
        if call(number, 0x8000 | 17, 0, 0, 0, 0) == 0:  # CLONE_PARENT
            os._exit(0)
        return "it was made"

    attempt("sibling", sibling)
    """
    return require_refusals(await lab.attempts(code, number=number), ["sibling"])


_CLONE = {"x86_64": 56, "aarch64": 220}


@use("system calls", "Use threads, memory, pipes, files and randomness.")
async def use_ordinary_calls(lab: Laboratory) -> str:
    code = """
    import mmap, threading

    def thread():
        one = threading.Thread(target=lambda: None)
        one.start()
        one.join()

    attempt("thread", thread)
    attempt("memory", lambda: len(mmap.mmap(-1, 4096)))
    attempt("pipe", lambda: len([os.close(end) for end in os.pipe()]))
    attempt("random", lambda: len(os.urandom(16)))
    """
    return require_success(await lab.attempts(code), ["thread", "memory", "pipe", "random"])


@attack("environment", "Find variables and open descriptors of the host.")
async def inherit_from_the_host(lab: Laboratory) -> str:
    code = """
    def descriptors():
        listed = os.listdir("/proc/self/fd")
        return sorted(int(one) for one in listed if os.path.exists(f"/proc/self/fd/{one}"))

    attempt("variable", lambda: variable in os.environ)
    attempt("descriptors", descriptors)
    """
    tried = await lab.attempts(code, variable=CANARY_VARIABLE)
    if tried.get("variable") != "got: False":
        raise BrokenError(f"a variable of the host is there: {tried}")
    if tried.get("descriptors") != "got: [0, 1, 2]":
        raise BrokenError(f"descriptors besides the three streams: {tried}")
    return "the host's variable is not there; descriptors 0, 1 and 2 alone"


_PLANT = """
import os, sys
os.mkdir("marks")
names = {*sys.stdlib_module_names, *sys.modules, "guest", "sitecustomize", "usercustomize", "IPython"}
for name in names:
    if "." not in name:
        with open(f"{name}.py", "w") as file:
            file.write(f"open('/workspace/marks/{name}', 'a').close()")
print("planted")
"""


@attack("environment", "Leave files in the workspace that are called like every module the machinery may import.")
async def be_imported_by_the_machinery(lab: Laboratory) -> str:
    async with lab.sandbox() as box:
        planted = await box.run(_PLANT)
        if planted.stdout != "planted\n":
            raise BrokenError(f"the files were not made: {planted.detail or planted.stderr[-200:]}")
        await box.files.write("file", "content")
        await box.run("class Own(Exception): pass\nraise Own")
        async with box.session() as session:
            await session.run("1 + 1")
        left = [entry.name for entry in await box.files.list("marks")]
    if left:
        raise BrokenError(f"modules of the workspace were executed: {', '.join(left)}")
    return "none was executed, by runs, by a session or by the file service"


@use("environment", "Give a program a variable, arguments and input.")
async def give_surroundings(lab: Laboratory) -> str:
    code = "import os, sys\nprint(os.environ['GIVEN'], sys.argv[1], sys.stdin.read())"
    result = await lab.run(code, env={"GIVEN": "variable"}, args=["argument"], stdin="input")
    if result.stdout != "variable argument input\n":
        raise BrokenError(f"the program saw {result.stdout!r} {result.stderr}")
    return "all three arrived"


TRIALS: tuple[Trial, ...] = (
    reach_a_process,
    start_a_process,
    gain_privileges,
    own_a_file,
    call_the_kernel,
    give_a_child_away,
    use_ordinary_calls,
    inherit_from_the_host,
    be_imported_by_the_machinery,
    give_surroundings,
)
