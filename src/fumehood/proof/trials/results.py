"""Trials of what a result says: the host's word on how a program ended, and what the program wrote, as it wrote it."""

from __future__ import annotations

from fumehood.errors import UsageError
from fumehood.policy.commands import judge_argv
from fumehood.proof.laboratory import Laboratory
from fumehood.proof.trial import BrokenError, DoesNotApplyError, Trial, attack, use
from fumehood.results import Cause, RunResult

_LIES = (
    '{"status": 0, "ended_by": "wall_time", "cpu_ms": 1e9, "peak_memory_bytes": 0, "trouble": null}',
    '{"failed": "starting", "detail": "forged"}',
    '{"refused": "forged"}',
)
_REQUEST = '{"interpreter": ["/bin/sh"], "script": "x", "arguments": [], "environment": {}, "cwd": "/"}'
_NOTE = "/run/.exhausted"
# What a program does at its end, and the exit code that is its own.
_ENDS = {
    "lies on stdout": (f"import os; os.write(1, {chr(10).join(_LIES).encode()!r}); os._exit(7)", 7),
    "lies on stderr": (f"import os; os.write(2, {chr(10).join(_LIES).encode()!r}); os._exit(7)", 7),
    "source like a request": (f"{_REQUEST}\nimport os; os._exit(7)", 7),
    "a forged note of failure": (f"import os\ntry: os.symlink('memory', {_NOTE!r})\nexcept OSError: pass", 0),
    "a note that nobody can read": (
        f"import os\ntry: os.mkfifo({_NOTE!r})\nexcept OSError: pass\nos._exit(5)",
        5,
    ),
    "a large exit code": ("import sys; sys.exit(2 ** 40 + 7)", 7),
    "a negative exit code": ("import sys; sys.exit(-1)", 255),
    "endless recursion": ("def deeper(): deeper()\ndeeper()", 1),
}
_SIGNAL = 40  # a real-time signal, which has no name of its own


@attack("results", "Lie about the own end: on both streams, by notes, with odd exit codes, by endless recursion.")
async def lie_about_the_end(lab: Laboratory) -> str:
    for name, (code, expected) in _ENDS.items():
        _require_end(name, await lab.run(code), Cause.EXIT, expected)
    killed = await lab.run(
        f"import os, ctypes; ctypes.CDLL(None).signal({_SIGNAL}, 0); os.kill(os.getpid(), {_SIGNAL})"
    )
    _require_end("a real-time signal", killed, Cause.SIGNAL, 128 + _SIGNAL)
    return f"each result had the exit code of the program: {', '.join(_ENDS)}, a real-time signal"


def _require_end(name: str, result: RunResult, cause: Cause, code: int) -> None:
    if (result.cause, result.exit_code) != (cause, code):
        raise BrokenError(f"{name}: {result.status}, {result.cause}, {result.exit_code} instead of {cause}, {code}")


_LINE = 99
_WRITE = """
import os
for _ in range(200):
    os.write(1, bytes(range(256)))
    os.write(2, b"e" * {size} + b"\\n")
"""


@use("results", "Write bytes that are not text to both streams.")
async def write_bytes(lab: Laboratory) -> str:
    result = await lab.run(_WRITE.format(size=_LINE))
    if result.stdout_bytes != bytes(range(256)) * 200 or result.stderr_bytes != (b"e" * _LINE + b"\n") * 200:
        raise BrokenError(f"{len(result.stdout_bytes)} and {len(result.stderr_bytes)} bytes, not as they were written")
    return "each byte arrived, in its own stream"


_ODD = ("", " ", "a\nb", "\t\x1b[31m", "-c", "--", '{"go": true}', "\udcff\udc80")
_TELL = "import os, sys; sys.stdout.write(ascii([sys.argv[1:], os.environ['ODD']]))"


@attack(
    "results", "Give a program arguments and variables with line breaks, controls and bytes, and text that is none."
)
async def give_odd_text(lab: Laboratory) -> str:
    result = await lab.run(_TELL, args=list(_ODD), env={"ODD": "a b\nc\udcff"})
    if result.stdout != ascii([list(_ODD), "a b\nc\udcff"]):
        raise BrokenError(f"the program saw {result.stdout[:300]} {result.stderr[-200:]}")
    try:
        await lab.run("print(1)", args=["a\ud800"])
    except UsageError as error:
        return f"{len(_ODD)} arguments and a variable arrived as they are; half a character: {str(error)[:100]}"
    except UnicodeError as error:
        raise BrokenError(f"half a character got as far as the wire: {error}") from error
    raise BrokenError("half a character was taken for text")


@attack("results", "Start a command with more arguments than the kernel takes.")
async def start_what_cannot_start(lab: Laboratory) -> str:
    if not judge_argv(lab.policy.commands, ["true"]).allowed:
        raise DoesNotApplyError("the policy does not allow `true`, which the trial starts")
    result = await lab.run(argv=["true", *["x" * 100_000] * 40])
    _require_end("a command that cannot start", result, Cause.EXIT, 126)
    return f"exit code 126: {result.stderr[-100:].strip()}"


@attack("results", "Close the workspace to every later run.")
async def close_the_workspace(lab: Laboratory) -> str:
    # Without outputs, for which the host would look into it.
    async with lab.sandbox({"filesystem": {"outputs": []}}) as box:
        await box.run("import os; os.chmod('/workspace', 0)")
        try:
            result = await box.run("print('ran')")
        except UsageError as error:
            return str(error)[:160]
    told = result.stdout or result.stderr or result.detail
    if not told:
        raise BrokenError("the later run failed without a word")
    return f"the later run: {told[:160].strip()}"


TRIALS: tuple[Trial, ...] = (
    lie_about_the_end,
    give_odd_text,
    start_what_cannot_start,
    close_the_workspace,
    write_bytes,
)
