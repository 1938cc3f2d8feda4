"""Trials of limits. A large limit is lowered for the trial: the mechanism is the same, and the host is not filled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fumehood.policy import format_size
from fumehood.proof.laboratory import Laboratory, require_time
from fumehood.proof.program import Program, in_words
from fumehood.proof.trial import BrokenError, Trial, attack, use
from fumehood.results import Cause, RunResult

_MIB = 1 << 20
_MEMORY, _DISK, _OUTPUT = 128 * _MIB, 16 * _MIB, 64 * 1024
_PROCESSES, _INODES, _OPEN_FILES = 32, 512, 64
_SECONDS = 1.0


async def with_limits(
    lab: Laboratory, limits: Mapping[str, Any], code: str, **facts: object
) -> tuple[RunResult, Program]:
    """A program in a sandbox of its own."""
    program = Program(code, **facts)
    async with lab.sandbox({"resources": limits}) as box:
        require_time(box)
        return await box.run(program.source), program


def _stopped(result: RunResult, cause: Cause, program: Program) -> str:
    """Ended by the limit, or refused by it while the program went on."""
    if result.cause == cause:
        return f"ended: {result.detail or result.cause}"
    tried = program.tried(result)
    if any(answer.startswith("refused") for answer in tried.values()):
        return f"refused: {in_words(tried)}"
    raise BrokenError(f"not stopped: {in_words(tried)}")


_STUBBORN = """
import signal, time
for number in set(range(1, 32)) - {{9, 19}}:
    signal.signal(number, signal.SIG_IGN)
end = time.monotonic() + {seconds}
while time.monotonic() < end:
    pass
"""


@attack("resources.timeout", "Go on for longer than the limit, with signals ignored.")
async def go_on(lab: Laboratory) -> str:
    seconds = min(_SECONDS, lab.policy.resources.timeout)
    result = await lab.run(_STUBBORN.format(seconds=seconds * 8), timeout=seconds)
    if result.cause != Cause.WALL_TIME:
        raise BrokenError(f"it ended otherwise: {result.status}, {result.cause} {result.stderr[-200:]}")
    return f"with {seconds:g} s: ended after {result.duration_ms / 1000:.2f} s"


@use("resources.timeout", "Take less time than the limit.")
async def end_in_time(lab: Laboratory) -> str:
    return _plain(await lab.run("import time; time.sleep(0.05); print('in time')"), "in time\n")


@attack("resources.memory", "Take more memory than the limit.", admitted=("without swap",))
async def take_memory(lab: Laboratory) -> str:
    limit = min(_MEMORY, lab.policy.resources.memory)
    code = """
    def take():
        pieces = []
        for _ in range(limit * 2 // 2**20):
            pieces.append(bytearray(os.urandom(1024)) * 1024)
        return len(pieces)

    attempt("twice the limit", take)
    """
    result, program = await with_limits(lab, {"memory": limit}, code, limit=limit)
    return f"with {format_size(limit)}: {_stopped(result, Cause.MEMORY, program)}"


@attack(
    "resources.memory",
    "Take more memory than the limit by four processes together, each of which has half of it.",
    admitted=("for each process", "without swap"),
)
async def take_memory_together(lab: Laboratory) -> str:
    limit = min(_MEMORY, lab.policy.resources.memory)
    code = """
    def hold(tell):
        try:
            held = bytearray(os.urandom(1024)) * (limit // 2048)
            os.write(tell, b"y")
            time.sleep(60)
        except MemoryError:
            os._exit(0)

    def start():
        ready, tell = os.pipe()
        child = os.fork()
        if child == 0:
            hold(tell)
        os.close(tell)
        return child, ready

    def together():
        children = [start() for _ in range(4)]
        told = [os.read(ready, 1) for _, ready in children]  # nothing of one that has ended
        for child, _ in children:
            os.kill(child, 9)
            os.waitpid(child, 0)
        if told.count(b"y") < 4:
            raise MemoryError
        return told.count(b"y")

    attempt("twice the limit", together)
    """
    result, program = await with_limits(lab, {"memory": limit}, code, limit=limit)
    return f"with {format_size(limit)}: {_stopped(result, Cause.MEMORY, program)}"


@use("resources.memory", "Take a quarter of the memory.")
async def take_some_memory(lab: Laboratory) -> str:
    limit = min(_MEMORY, lab.policy.resources.memory)
    result, program = await with_limits(
        lab, {"memory": limit}, 'attempt("memory", lambda: len(bytearray(limit // 4)))', limit=limit
    )
    if program.tried(result) != {"memory": f"got: {limit // 4}"}:
        raise BrokenError(f"{result.detail or result.stdout[-200:]}")
    return f"{format_size(limit // 4)} of {format_size(limit)}"


@use("resources.cpus", "Calculate.")
async def calculate(lab: Laboratory) -> str:
    return _plain(await lab.run("print(sum(range(100_000)))"), "4999950000\n")


@attack("resources.cpu_time", "Use more processor time than the limit.")
async def take_cpu_time(lab: Laboratory) -> str:
    async with lab.sandbox({"resources": {"cpu_time": "1s", "timeout": "10s"}}) as box:
        result = await box.run("while True: pass")
    if result.cause != Cause.CPU_TIME:
        raise BrokenError(f"it ended otherwise: {result.status}, {result.cause}")
    return f"with 1 s: ended after {result.cpu_ms / 1000:.2f} s of processor time"


@use("resources.cpu_time", "Use less processor time than the limit.")
async def use_cpu_time(lab: Laboratory) -> str:
    return await calculate.carry_out(lab)


@attack("resources.processes", "Start more processes than the limit.")
async def multiply(lab: Laboratory) -> str:
    limit = min(_PROCESSES, lab.policy.resources.processes)
    code = """
    def multiply():
        children = []
        try:
            for _ in range(limit + 16):
                child = os.fork()
                if child == 0:
                    time.sleep(60)
                    os._exit(0)
                children.append(child)
            return len(children)
        finally:
            for child in children:
                os.kill(child, 9)
                os.waitpid(child, 0)

    attempt("processes", multiply)
    """
    result, program = await with_limits(lab, {"processes": limit}, code, limit=limit)
    return f"with {limit}: {_stopped(result, Cause.PROCESSES, program)}"


@use("resources.processes", "Start a few processes.")
async def start_a_few(lab: Laboratory) -> str:
    code = "import os\nfor _ in range(3):\n    if os.fork() == 0: os._exit(0)\n    os.wait()\nprint('three')"
    return _plain(await lab.run(code), "three\n")


# Each file is smaller than the limit: one that is larger would be refused for its own size, whatever there is room for.
_FILL = """
def fill(folder):
    written = 0
    for name in names:
        with open(os.path.join(folder, name), "wb", 0) as file:
            for _ in range(8):
                written += file.write(bytes(limit // 16))
    return written

names = [f"filled-{number}" for number in range(4)]
for folder in ("/tmp", "/workspace"):
    attempt(folder, lambda: fill(folder))
    for name in names:
        if os.path.exists(os.path.join(folder, name)):
            os.remove(os.path.join(folder, name))
"""


@attack("resources.disk", "Write more than the limit, in several files, to /tmp and to the workspace.")
async def fill_the_disk(lab: Laboratory) -> str:
    limit = min(_DISK, lab.policy.resources.disk)
    changes = {"resources": {"disk": limit}, "filesystem": {"workspace": {"size": limit}}}
    program = Program(_FILL, limit=limit)
    async with lab.sandbox(changes) as box:
        result = await box.run(program.source)
    tried = program.tried(result)
    if set(tried) != {"/tmp", "/workspace"} or not all(answer.startswith("refused") for answer in tried.values()):
        raise BrokenError(f"with {format_size(limit)}: {in_words(tried)}")
    return f"with {format_size(limit)}: {in_words(tried)}"


@use("resources.disk", "Write half of the limit.")
async def write_to_disk(lab: Laboratory) -> str:
    limit = min(_DISK, lab.policy.resources.disk)
    code = 'attempt("file", lambda: open("/tmp/half", "wb").write(bytes(limit // 2)))'
    result, program = await with_limits(lab, {"disk": limit}, code, limit=limit)
    if program.tried(result) != {"file": f"got: {limit // 2}"}:
        raise BrokenError(result.detail or result.stdout[-200:])
    return f"{format_size(limit // 2)} of {format_size(limit)}"


@attack("resources.inodes", "Make more files than the limit.", admitted=("gVisor does not count files",))
async def make_countless_files(lab: Laboratory) -> str:
    limit = min(_INODES, lab.policy.resources.inodes)
    code = """
    def make():
        os.mkdir("/tmp/many")
        for number in range(limit + 64):
            os.close(os.open(f"/tmp/many/{number}", os.O_CREAT | os.O_WRONLY))
        return number

    attempt("files", make)
    """
    result, program = await with_limits(lab, {"inodes": limit}, code, limit=limit)
    return f"with {limit}: {_stopped(result, Cause.DISK, program)}"


@use("resources.inodes", "Make ten files.")
async def make_files(lab: Laboratory) -> str:
    code = "for number in range(10):\n    open(f'/tmp/{number}', 'w').close()\nprint('ten')"
    return _plain(await lab.run(code), "ten\n")


@attack("resources.output", "Write more output than the limit.")
async def flood(lab: Laboratory) -> str:
    limit = min(_OUTPUT, lab.policy.resources.output)
    async with lab.sandbox({"resources": {"output": limit}}) as box:
        result = await box.run(f"import sys\nfor _ in range({limit} // 256): sys.stdout.write('x' * 1024)")
    size = len(result.stdout) + len(result.stderr)
    if result.cause != Cause.OUTPUT or size > limit:
        raise BrokenError(f"{size} bytes arrived, and it ended with {result.cause}")
    return f"with {format_size(limit)}: {size} bytes arrived, then it was ended"


@use("resources.output", "Print a line.")
async def print_a_line(lab: Laboratory) -> str:
    return _plain(await lab.run("print('a line')"), "a line\n")


@attack("resources.open_files", "Open more files than the limit.")
async def open_countless_files(lab: Laboratory) -> str:
    limit = min(_OPEN_FILES, lab.policy.resources.open_files)
    code = """
    def open_many():
        opened = []
        try:
            for _ in range(limit + 16):
                opened.append(os.open("/", os.O_RDONLY))
            return len(opened)
        finally:
            for one in opened:
                os.close(one)

    attempt("files", open_many)
    """
    result, program = await with_limits(lab, {"open_files": limit}, code, limit=limit)
    tried = program.tried(result)
    if tried.get("files") != "refused: EMFILE":
        raise BrokenError(f"with {limit}: {tried}")
    return f"with {limit}: EMFILE"


@use("resources.open_files", "Open a few files.")
async def open_files(lab: Laboratory) -> str:
    return _plain(
        await lab.run("print(len([open('/') and 0 for _ in ()]) or open('/tmp/x', 'w').fileno() > 2)"), "True\n"
    )


def _plain(result: RunResult, expected: str) -> str:
    if result.status != "success" or result.stdout != expected:
        raise BrokenError(f"{result.status}: {result.stdout[-200:]!r} {result.detail or result.stderr[-200:]}")
    return f"it printed {expected.strip()!r}"


TRIALS: tuple[Trial, ...] = (
    go_on,
    end_in_time,
    take_memory,
    take_memory_together,
    take_some_memory,
    calculate,
    take_cpu_time,
    use_cpu_time,
    multiply,
    start_a_few,
    fill_the_disk,
    write_to_disk,
    make_countless_files,
    make_files,
    flood,
    print_a_line,
    open_countless_files,
    open_files,
)
