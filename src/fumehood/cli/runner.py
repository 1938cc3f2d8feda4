"""One run, watched by a person or a script: its output goes where ours goes, and a signal to us is one to it."""

from __future__ import annotations

import asyncio
import math
import os
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Protocol

import anyio

from fumehood.cli.artifacts import ArtifactSaver
from fumehood.cli.interruption import Interruption, StoppedBySignalError
from fumehood.cli.output import ProgramOutput, say
from fumehood.cli.place import NamedSandboxUse, fresh_sandbox, named_sandbox
from fumehood.errors import AuditError, FumehoodError
from fumehood.events import Event, Finished, Stderr, Stdout
from fumehood.frozen import frozen
from fumehood.policy import Policy, format_duration
from fumehood.results import Display, RunResult
from fumehood.sandbox.async_sandbox import AsyncSandbox
from fumehood.sandbox.ports import AsyncExposedPort
from fumehood.sandbox.request import RunOptions

if TYPE_CHECKING:
    from fumehood.audit import Trail
    from fumehood.cli.notebook import Notebook

# Between a signal that the program was handed and its end by force.
_GRACE_SECONDS = 3.0
Work = Callable[[AsyncSandbox, bytes], Awaitable[RunResult]]


class Inputs(Protocol):
    """Files of the host's that belong to the program."""

    async def put_into(self, box: AsyncSandbox) -> None:
        """Copies them to the workspace, before the program starts."""
        ...

    async def take_back(self, box: AsyncSandbox, result: RunResult) -> None:
        """What is to be done with them once it has ended."""
        ...


@frozen
class Job:
    policy: Policy
    code: bytes
    options: RunOptions
    session: bool
    artifacts: ArtifactSaver
    learn: bool = False
    """Nothing gets out, and what was tried is recorded. Standard output is not the program's then."""
    inputs: Inputs | None = None
    publish: tuple[int, ...] = ()
    """Ports of the program whose addresses are printed when it listens there."""
    named: NamedSandboxUse | None = None
    """A named sandbox instead of a fresh one; it keeps what the program leaves."""


def run_silently(job: Job, interruption: Interruption) -> RunResult:
    """The output is in the result."""

    async def work(box: AsyncSandbox, code: bytes) -> RunResult:
        return await box.run(_source(job, code), **job.options)

    return _supervise(job, work, interruption)


def run_live(job: Job, interruption: Interruption) -> RunResult:
    """The output appears while the program runs; the result is without it."""
    streams = (ProgramOutput(2 if job.learn else 1, interruption), ProgramOutput(2, interruption))

    async def work(box: AsyncSandbox, code: bytes) -> RunResult:
        return await _show(box.stream(_source(job, code), **job.options), job.artifacts, *streams)

    try:
        return _supervise(job, work, interruption)
    finally:
        for stream in streams:
            stream.finish()


def run_notebook(job: Job, notebook: Notebook, interruption: Interruption, *, is_silent: bool) -> RunResult:
    """The outputs of its cells appear as they come, unless `is_silent`, and are in the notebook afterwards."""
    from fumehood.cli.notebook import run_cells

    stdout, stderr = (ProgramOutput(number, interruption) for number in (1, 2))

    async def show(event: Event | Display) -> None:
        match event:
            case Stdout(data) if not is_silent:
                await stdout.write(data)
            case Stderr(data) if not is_silent:
                await stderr.write(data)
            case Display() if not is_silent:
                await job.artifacts.show(event, stdout, stderr)
            case _:
                pass

    async def work(box: AsyncSandbox, code: bytes) -> RunResult:
        result = await run_cells(notebook, box, show)
        stdout.finish()
        stderr.finish()
        return result

    return _supervise(job, work, interruption)


async def _show(
    stream: AsyncGenerator[Event, None], artifacts: ArtifactSaver, stdout: ProgramOutput, stderr: ProgramOutput
) -> RunResult:
    # Closed here and now, whatever happens: leaving the stream is what ends the run.
    async with aclosing(stream) as events:
        async for event in events:
            match event:
                case Stdout(data):
                    await stdout.write(data)
                case Stderr(data):
                    await stderr.write(data)
                case Display():
                    await artifacts.show(event, stdout, stderr)
                case Finished(result):
                    # Before we say anything ourselves: a program may have left its colours on, or the terminal blank.
                    stdout.finish()
                    stderr.finish()
                    return result
    raise AssertionError("a stream ends with Finished")


def _tell(line: str) -> None:
    """Prints progress, on a terminal only."""
    if os.isatty(2):
        say(line)


@asynccontextmanager
async def _publishing(box: AsyncSandbox, ports: tuple[int, ...]) -> AsyncIterator[None]:
    """Addresses that answer during the block; each is printed as soon as the program listens there."""
    if not ports:
        yield
        return
    async with anyio.create_task_group() as tasks, AsyncExitStack() as stack:
        for port in ports:
            exposed = await stack.enter_async_context(await box.expose(port))
            tasks.start_soon(_tell_address, exposed, box.policy.resources.timeout)
        yield
        tasks.cancel_scope.cancel()


async def _tell_address(exposed: AsyncExposedPort, timeout_seconds: float) -> None:
    await exposed.wait_ready(timeout=None)
    say(f"port {exposed.port} is at {exposed.url}")
    if timeout_seconds == Policy().resources.timeout:  # which no one has chosen for a server
        say(f"the program may run for {format_duration(timeout_seconds)}; --timeout 1h gives it more")


async def _admitted(job: Job) -> tuple[bytes, Trail | None]:
    """The code that may run, and the audit trail that ties it to its approval."""
    if not job.policy.approvals:
        return job.code, None
    from fumehood.cli import approval_prompt

    admitted = await approval_prompt.ask(job.policy, job.code, job.options, session=job.session)
    return admitted.code, admitted.trail


class _Stop:
    """Signals of one run: the first goes to the program, which may end by itself; a second one, or time, ends it."""

    def __init__(self, job: Job, scope: anyio.CancelScope) -> None:
        self._is_session = job.session
        self._scope = scope
        self._box: AsyncSandbox | None = None
        self._sending: asyncio.Task[None] | None = None

    @contextmanager
    def through(self, box: AsyncSandbox) -> Iterator[None]:
        """While a program runs there."""
        self._box = box
        try:
            yield
        finally:
            self._box, self._scope.deadline = None, math.inf

    def receive(self, number: int) -> None:
        if number == signal.SIGINT and os.isatty(2):
            os.write(2, b"\n")  # the terminal has just written ^C where the cursor was
        if self._box is None or self._sending or (self._is_session and number != signal.SIGINT):
            self._scope.cancel()
            return
        self._scope.deadline = anyio.current_time() + _GRACE_SECONDS
        self._sending = asyncio.get_running_loop().create_task(self._box.send_signal(number))


def _source(job: Job, code: bytes) -> bytes | None:
    return None if job.options.get("argv") else code


def _sandbox(job: Job, audit: Trail | None) -> AsyncSandbox:
    if job.named is not None:
        return named_sandbox(job.named, progress=_tell, audit=audit)
    return fresh_sandbox(
        job.policy, session=job.session, learn=job.learn, gated=bool(job.policy.approvals), progress=_tell, audit=audit
    )


def _supervise(job: Job, work: Work, interruption: Interruption) -> RunResult:
    async def main() -> RunResult:
        with anyio.CancelScope() as scope:
            stop = _Stop(job, scope)
            with interruption.handing_to(stop.receive):
                code, audit = await _admitted(job)
                box = _sandbox(job, audit)
                async with box:
                    if job.inputs:
                        await job.inputs.put_into(box)
                    async with _publishing(box, job.publish):
                        with stop.through(box):
                            result = await work(box, code)
                    await job.artifacts.gather(box, result.artifacts)
                    if job.inputs:
                        await job.inputs.take_back(box, result)
                    return result
        raise StoppedBySignalError(interruption.signal or 0)

    try:
        return anyio.run(main)
    except AuditError:
        # Whatever was shown is not recorded, and a signal does not change that.
        raise
    except FumehoodError:
        # Ctrl-C reaches a cell that is just being started too; its complaint is not the news.
        if interruption.signal:
            raise StoppedBySignalError(interruption.signal) from None
        raise
