"""A bash that keeps its folder, variables, functions and jobs from one command to the next.

It is one background run of the sandbox: it lives as long as `resources.timeout` and the other limits of a run let it,
and ends with a command that runs into its own time limit. The next command then has a new one.
"""

from __future__ import annotations

import re
import secrets
import time

import anyio
from agent_framework_tools.shell import ShellResult

from fumehood.errors import UsageError
from fumehood.integrations.adapter import with_reason
from fumehood.results import RunResult, Status
from fumehood.sandbox.background import NewOutput
from fumehood.sandbox.interface import AnyBackgroundRun, AnySandbox

_TIMEOUT_EXIT_CODE = 124
# Commands and marks arrive on descriptor 9, which no command has; their own input is empty. A mark is read when its
# command has ended, and is written to both streams, wherever the command has led its own output.
_LOOP = r"""
exec 7>&1 8>&2 9<&0 </dev/null
while IFS= read -r -d '' -u 9 FUMEHOOD_COMMAND; do
    eval "$FUMEHOOD_COMMAND" 7>&- 8>&- 9<&-
    FUMEHOOD_CODE=$?
    IFS= read -r -d '' -u 9 FUMEHOOD_MARK || exit
    printf '%s %d\n' "$FUMEHOOD_MARK" "$FUMEHOOD_CODE" >&7
    printf '%s %d\n' "$FUMEHOOD_MARK" "$FUMEHOOD_CODE" >&8
done
"""
_LOST = "the shell has ended, with its variables, folder and jobs; the next command begins in a new one\n"


class KeptShell:
    def __init__(self, sandbox: AnySandbox) -> None:
        self._sandbox = sandbox
        self._turn = anyio.Lock()
        self._run: AnyBackgroundRun | None = None

    async def run(self, command: str, timeout_seconds: float) -> ShellResult:
        """One command after the other. One that is cancelled or late ends the shell, for it cannot be ended alone."""
        if "\0" in command:
            raise UsageError("the command has a NUL character, which no shell takes; leave it out")
        async with self._turn:
            if self._run is None or await self._run.poll() is not None:
                self._run = await self._sandbox.start(argv=["/bin/bash", "-c", _LOOP])
            exchange = _Exchange(self._run, command)
            try:
                with anyio.move_on_after(timeout_seconds):
                    return await exchange.result()
                return await exchange.late(timeout_seconds)
            finally:
                if not exchange.is_over:
                    with anyio.CancelScope(shield=True):
                        await self._run.kill()


class _Stream:
    """Output of one command, up to its mark."""

    def __init__(self, mark: str) -> None:
        self._end = re.compile(re.escape(mark).encode() + rb" (\d{1,3})\n")
        self._longest = len(mark) + len(" 255\n")
        self._data = bytearray()
        self.exit_code: int | None = None

    def add(self, data: bytes) -> None:
        start = max(0, len(self._data) - self._longest)
        self._data += data
        if self.exit_code is None and (found := self._end.search(self._data, start)):
            self.exit_code = int(found[1])
            del self._data[found.start() :]

    @property
    def text(self) -> str:
        return self._data.decode("utf-8", "replace")


class _Exchange:
    """One command and what belongs to it of the shell's output."""

    def __init__(self, run: AnyBackgroundRun, command: str) -> None:
        self._run, self._command = run, command
        self._mark = f"fumehood-{secrets.token_hex(16)}"
        self._stdout, self._stderr = _Stream(self._mark), _Stream(self._mark)
        self._started = time.monotonic()
        self.is_over = False

    async def result(self) -> ShellResult:
        await self._run.write(f"{self._command}\0{self._mark}\0")
        while True:
            ended = await self._run.poll()
            self._take(await self._run.read(wait=0 if ended else "1h"))
            if self._stdout.exit_code is not None and self._stderr.exit_code is not None:
                self.is_over = True
                return self._result(self._stdout.exit_code)
            if ended is not None:
                return self._ended(ended)

    async def late(self, timeout_seconds: float) -> ShellResult:
        await self._run.kill()
        self._take(await self._run.read())
        self.is_over = True
        self._stderr.add(f"timeout: it ran longer than {timeout_seconds:g}s; {_LOST}".encode())
        return self._result(_TIMEOUT_EXIT_CODE, timed_out=True)

    def _ended(self, ended: RunResult) -> ShellResult:
        """`exit`, or a limit of the run."""
        self.is_over = True
        self._stderr.add(f"{with_reason('', ended)}{_LOST}".encode())
        return self._result(ended.exit_code, timed_out=ended.status is Status.TIMEOUT, truncated=ended.truncated)

    def _take(self, output: NewOutput) -> None:
        self._stdout.add(output.stdout)
        self._stderr.add(output.stderr)

    def _result(self, exit_code: int, *, timed_out: bool = False, truncated: bool = False) -> ShellResult:
        return ShellResult(
            stdout=self._stdout.text,
            stderr=self._stderr.text,
            exit_code=exit_code,
            duration_ms=round((time.monotonic() - self._started) * 1000),
            truncated=truncated,
            timed_out=timed_out,
        )
