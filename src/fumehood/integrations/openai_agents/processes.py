"""Commands that go on between the calls of a sandbox agent's tools: `exec_command` starts one, `write_stdin` goes on.

Each is a background run of the session's sandbox, under its policy. What the SDK says of times, numbers and shortened
output holds here, too; its own functions compute them.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import anyio
from agents.sandbox.errors import ExecTransportError, PtySessionNotFoundError
from agents.sandbox.session.pty_types import (
    PtyExecUpdate,
    allocate_pty_process_id,
    clamp_pty_yield_time_ms,
    resolve_pty_write_yield_time_ms,
    truncate_text_by_tokens,
)

from fumehood.integrations.adapter import with_reason
from fumehood.results import Cause, RunResult
from fumehood.sandbox.interface import AnyBackgroundRun, AnySandbox
from fumehood.tools.processes import MOST_PROCESSES, TERMINAL

# The SDK tells the model of these words how to get an input.
_NO_INPUT = "stdin is not available for this process"


def _decoder() -> codecs.IncrementalDecoder:
    """A character can be cut into two looks."""
    return codecs.getincrementaldecoder("utf-8")("replace")


@dataclass(slots=True)
class _Command:
    argv: Sequence[str]
    run: AnyBackgroundRun
    has_terminal: bool
    decoders: tuple[codecs.IncrementalDecoder, codecs.IncrementalDecoder] = field(
        default_factory=lambda: (_decoder(), _decoder())
    )

    async def collect(self, seconds: float) -> tuple[str, RunResult | None]:
        """What it prints until the time is over or it has ended, and how it ended."""
        text, deadline = "", anyio.current_time() + seconds
        result = await self.run.poll()
        while result is None and (left := deadline - anyio.current_time()) > 0:
            text += await self._read(left)
            result = await self.run.poll()
        return text + await self._read(0, is_last=result is not None), result

    async def _read(self, wait: float, *, is_last: bool = False) -> str:
        output = await self.run.read(wait=wait)
        stdout, stderr = self.decoders
        return stdout.decode(output.stdout, is_last) + stderr.decode(output.stderr, is_last)


class SessionProcesses:
    """The commands of one session that have not been seen to end, by number, the longest unused one first."""

    def __init__(self) -> None:
        self._commands: dict[int, _Command] = {}

    async def start(
        self,
        box: AnySandbox,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str,
        timeout: float | None,
        has_terminal: bool,
        yield_seconds: float | None,
        max_output_tokens: int | None,
    ) -> PtyExecUpdate:
        terminal = TERMINAL if has_terminal else None
        run = await box.start(argv=[*argv], env=dict(env), cwd=cwd, timeout=timeout, terminal=terminal)
        command, number = _Command(argv, run, has_terminal), allocate_pty_process_id(set(self._commands))
        self._commands[number] = command
        try:
            if not has_terminal:
                await run.close_stdin()
            await self._make_room()
            milliseconds = clamp_pty_yield_time_ms(_milliseconds(yield_seconds, 10_000))
            return await self._update(number, command, milliseconds, max_output_tokens)
        except BaseException:
            # Its number has reached no caller.
            await self._end(number)
            raise

    async def write(
        self, number: int, text: str, *, yield_seconds: float | None, max_output_tokens: int | None
    ) -> PtyExecUpdate:
        command = self._commands.get(number)
        if command is None:
            raise PtySessionNotFoundError(session_id=number)
        self._commands[number] = self._commands.pop(number)
        milliseconds = resolve_pty_write_yield_time_ms(
            yield_time_ms=_milliseconds(yield_seconds, 250), input_empty=not text
        )
        if text:
            if not command.has_terminal:
                raise RuntimeError(_NO_INPUT)
            with anyio.move_on_after(milliseconds / 1000):
                await command.run.write(text)
        return await self._update(number, command, milliseconds, max_output_tokens)

    async def end_all(self) -> None:
        for number in [*self._commands]:
            await self._end(number)

    async def _make_room(self) -> None:
        """As in the SDK: too many are never refused, for no tool ends one; the longest unused one ends."""
        while len(self._commands) > MOST_PROCESSES:
            await self._end(next(iter(self._commands)))

    async def _end(self, number: int) -> None:
        if command := self._commands.pop(number, None):
            with anyio.CancelScope(shield=True):
                await command.run.kill()

    async def _update(
        self, number: int, command: _Command, milliseconds: int, max_output_tokens: int | None
    ) -> PtyExecUpdate:
        text, result = await command.collect(milliseconds / 1000)
        if result is not None:
            self._commands.pop(number, None)
            if result.cause is Cause.LOST:
                raise ExecTransportError(command=[*command.argv], message=result.detail)
            text = with_reason(text, result)
        shortened, tokens = truncate_text_by_tokens(text, max_output_tokens)
        return PtyExecUpdate(
            process_id=number if result is None else None,
            output=shortened.encode(),
            exit_code=result.exit_code if result else None,
            original_token_count=tokens,
        )


def _milliseconds(seconds: float | None, default: int) -> int:
    return default if seconds is None else int(seconds * 1000)
