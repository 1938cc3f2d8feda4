"""A run that goes on while its caller does other things."""

from __future__ import annotations

import signal
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack

import anyio

from fumehood.backends.interface import LiveExecution
from fumehood.errors import UsageError
from fumehood.events import Event, Finished, Stderr, Stdout
from fumehood.frozen import frozen
from fumehood.policy import Seconds, read_seconds
from fumehood.results import RunOutput, RunResult
from fumehood.sandbox.audit import RunAudit
from fumehood.sandbox.output import as_event
from fumehood.sandbox.request import checked_terminal


@frozen
class NewOutput:
    """What a program wrote since the last look."""

    stdout: bytes
    stderr: bytes


class AsyncBackgroundRun:
    """A run in the background, made by `AsyncSandbox.start`; lives until it ends, or its sandbox is closed.

    No task of ours reads ahead: output that the caller does not read waits in a pipe of up to 1 MiB, then writes block.
    """

    def __init__(
        self,
        execution: LiveExecution,
        lifetime: AsyncExitStack,
        audit: RunAudit,
        report: Callable[[RunOutput, str], Awaitable[RunResult]],
    ) -> None:
        self._execution = execution
        self._lifetime = lifetime
        self._audit = audit
        self._report = report
        self._output = {1: bytearray(), 2: bytearray()}
        self._shown = {1: 0, 2: 0}
        self._turn, self._end = anyio.Lock(), anyio.Lock()
        self._result: RunResult | None = None

    async def poll(self) -> RunResult | None:
        """The result, if there is one already."""
        self._look()
        return await self._conclude() if self._execution.is_over else None

    async def read(self, *, wait: Seconds = 0) -> NewOutput:
        """What was written since the last `read`. Waits at most `wait` for any of it, or for the end."""
        self._look()
        with anyio.move_on_after(read_seconds(wait, "wait") if wait else 0):
            while not self._is_news() and await self._wait_for_more():
                pass
        return NewOutput(self._take(1), self._take(2))

    async def stream(self) -> AsyncGenerator[Event, None]:
        """What `read` has not given yet, then output as it appears; `Finished` comes last, without that output."""
        is_over = False
        while not is_over:
            is_over = not await self._wait_for_more()
            stdout, stderr = self._take(1), self._take(2)
            self._forget_shown()
            if stdout:
                yield Stdout(stdout)
            if stderr:
                yield Stderr(stderr)
        yield Finished(await self._conclude())

    async def wait(self) -> RunResult:
        """Waits for its end. The result has all output, also what was read before, but not what was streamed."""
        while await self._wait_for_more():
            pass
        return await self._conclude()

    async def _wait_for_more(self) -> bool:
        """False when it is over and there is nothing more to wait for. Several tasks may wait at once."""
        async with self._turn:
            if self._execution.is_over:
                return False
            await self._execution.wait_for_output()
            self._look()
        return True

    async def write(self, data: bytes | str) -> None:
        """Writes to the program's standard input, or its terminal. Waits while the program does not read."""
        content = data.encode() if isinstance(data, str) else data
        self._audit.stdin(content)
        await self._execution.write(content)

    async def close_stdin(self) -> None:
        self._execution.close_input()

    async def send_signal(self, number: int | signal.Signals) -> None:
        """Sends a signal to the program's first process."""
        self._execution.send_signal(checked_signal(number))

    async def resize(self, columns: int, rows: int) -> None:
        """Sets the size of its terminal. The program gets SIGWINCH, as when a window changes."""
        self._execution.resize(checked_terminal((columns, rows)))

    async def kill(self) -> RunResult:
        """End it with everything that it started; when this returns nothing of it is left."""
        self._execution.kill()
        return await self.wait()

    async def close(self) -> None:
        """Ends the run when its sandbox closes. Tasks that wait for it get its result: cancelled."""
        if not self._execution.is_over:
            self._execution.kill()
        async with self._turn, self._end:  # whoever waits for output has seen the end, and waits no more
            if self._result is None:
                await self._lifetime.aclose()
                await self._audit.failed(None)

    @property
    def is_concluded(self) -> bool:
        """It needs no closing any more."""
        return self._result is not None

    def _look(self) -> None:
        for output in self._execution.waiting_output():
            self._output[output.stream] += output.data
            self._audit.output(as_event(output))

    def _is_news(self) -> bool:
        return any(len(self._output[stream]) > shown for stream, shown in self._shown.items())

    def _take(self, stream: int) -> bytes:
        data = bytes(self._output[stream][self._shown[stream] :])
        self._shown[stream] += len(data)
        return data

    def _forget_shown(self) -> None:
        """A stream may go on for long, and who reads it wants no second copy."""
        for stream, shown in self._shown.items():
            del self._output[stream][:shown]
            self._shown[stream] = 0

    async def _conclude(self) -> RunResult:
        """Once, however many tasks wait for the end."""
        async with self._end:
            if self._result is None:
                await self._lifetime.aclose()
                taken = RunOutput(self._execution.outcome(), bytes(self._output[1]), bytes(self._output[2]))
                self._result = await self._audit.finished(await self._report(taken, self._audit.run_id))
            return self._result


def checked_signal(number: int | signal.Signals) -> int:
    if number not in signal.valid_signals():
        raise UsageError(f"{number!r} is not the number of a signal")
    return int(number)
