"""The facade: `Sandbox`, where the caller's wishes meet a policy and a backend.

A sandbox is one place with one policy and one workspace. Every run in it is a fresh process in fresh namespaces; what
runs of one sandbox share is the workspace, and nothing else.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self, Unpack

from fumehood.backends.interface import BackendSandbox
from fumehood.backends.selection import select_backend
from fumehood.errors import UsageError
from fumehood.events import Event, Finished, Stderr, Stdout
from fumehood.policy import Policy
from fumehood.requests import RunOptions, make_request
from fumehood.results import RunResult


class Sandbox:
    """`async with Sandbox(policy) as box`: opened, used, closed. Without a policy everything is denied."""

    def __init__(self, policy: Policy | None = None) -> None:
        self.policy = policy or Policy()
        self._opened: BackendSandbox | None = None
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        if self._opened is not None:
            raise UsageError("this sandbox is open already; make another Sandbox for a second place")
        self._opened = await self._stack.enter_async_context(select_backend(self.policy).open(self.policy))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._opened = None
        await self._stack.aclose()

    @property
    def enforcement(self) -> Mapping[str, str]:
        """Control -> the mechanism that enforces it here."""
        return self._backend_sandbox().report.mechanisms()

    async def run(self, code: str | bytes | None = None, **options: Unpack[RunOptions]) -> RunResult:
        """Run code, or a command with `argv`, to its end. A program that fails is a result, not an exception."""
        request = make_request(self.policy, code, options)
        streams: dict[int, list[bytes]] = {1: [], 2: []}
        async with self._backend_sandbox().start(request) as execution:
            async for output in execution.output(live=False):
                streams[output.stream].append(output.data)
            outcome = execution.outcome()
        return RunResult.of(outcome, b"".join(streams[1]), b"".join(streams[2]), _run_id(), self.policy.digest)

    async def stream(self, code: str | bytes | None = None, **options: Unpack[RunOptions]) -> AsyncIterator[Event]:
        """As `run`, but output arrives as it appears. The last event is `Finished`; leaving early ends the run."""
        request = make_request(self.policy, code, options)
        async with self._backend_sandbox().start(request) as execution:
            async for output in execution.output(live=True):
                yield Stdout(output.data) if output.stream == 1 else Stderr(output.data)
            outcome = execution.outcome()
        yield Finished(RunResult.of(outcome, b"", b"", _run_id(), self.policy.digest))

    def _backend_sandbox(self) -> BackendSandbox:
        if self._opened is None:
            raise UsageError("the sandbox is not open; use it inside `async with Sandbox(policy) as box:`")
        return self._opened


def _run_id() -> str:
    return f"run_{secrets.token_hex(8)}"
