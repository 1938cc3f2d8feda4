"""Tasks of `hood agent`, one or one after the other, and what signals do to them."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

import anyio
import anyio.to_thread

from fumehood.agents import ApprovalSettings, AssistantAgent
from fumehood.agents.events import CallReturned, TaskEnded, TaskEvent
from fumehood.agents.result import Stop, TaskResult
from fumehood.cli import exitcodes
from fumehood.cli.agent.options import Arguments, load_state, make_agent, make_reviewer, save_state
from fumehood.cli.agent.renderers import JsonLines, Renderer, Screen
from fumehood.cli.approval_prompt import Prompt
from fumehood.cli.artifacts import ArtifactSaver
from fumehood.cli.output import BOLD, paint, say
from fumehood.errors import UsageError

_Act = Callable[[AssistantAgent, "_Watch", Renderer, Arguments], Awaitable[int]]
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_tasks(chosen: Arguments) -> int:
    approvals = _asking(chosen)
    renderer: Renderer = JsonLines() if chosen.json else Screen(chosen.out, has_prompt=approvals.ask is not None)
    agent = make_agent(chosen, approvals)
    load_state(agent, chosen.state)
    watch = _Watch(agent, ArtifactSaver(chosen.out, quiet=chosen.json))
    match chosen.verb:
        case "chat":
            return anyio.run(watch.over, _chat, renderer, chosen)
        case "resume":
            if not agent.is_paused:
                raise UsageError("there is no paused task; name the file that was given as --state")
            return anyio.run(watch.over, _resume, renderer, chosen)
        case _:
            return anyio.run(watch.over, _run, renderer, chosen)


def _asking(chosen: Arguments) -> ApprovalSettings:
    """A reviewer first; then at the terminal, if there is one; else, or with --pause, with `hood approvals`."""
    reviewer = make_reviewer(chosen)
    if chosen.pause:
        return ApprovalSettings(pauses=True, reviewer=reviewer)
    prompt = Prompt()
    return ApprovalSettings(ask=prompt.ask if prompt.is_there() else None, listener=prompt, reviewer=reviewer)


class _Watch:
    """The first signal ends the task under way, or, between tasks, everything."""

    def __init__(self, agent: AssistantAgent, artifacts: ArtifactSaver) -> None:
        self._agent, self._artifacts = agent, artifacts
        self.is_at_task = False
        self._signal: int | None = None

    async def over(self, act: _Act, renderer: Renderer, chosen: Arguments) -> int:
        code, failure = 0, None
        async with anyio.create_task_group() as group:
            group.start_soon(self._listen, group.cancel_scope)
            try:
                code = await act(self._agent, self, renderer, chosen)
            except Exception as error:  # raised below, as itself and not as one of a group
                failure = error
            group.cancel_scope.cancel()
        if failure is not None:
            raise failure
        return exitcodes.for_signal(self._signal) if self._signal else code

    async def _listen(self, scope: anyio.CancelScope) -> None:
        with anyio.open_signal_receiver(*_SIGNALS) as received:
            async for number in received:
                if not self.is_at_task or number != signal.SIGINT:
                    self._signal = number
                    scope.cancel()
                self._agent.cancel()

    async def task(self, events: AsyncGenerator[TaskEvent, None], renderer: Renderer) -> TaskResult[object]:
        self.is_at_task = True
        try:
            async with aclosing(events) as stream:
                async for event in stream:
                    renderer.show(event)
                    if isinstance(event, CallReturned) and event.run is not None:
                        for display in event.run.displays:
                            self._artifacts.picture(display)
                    if isinstance(event, TaskEnded):
                        return event.result
        finally:
            self.is_at_task = False
        raise AssertionError("a stream ends with TaskEnded")


async def _run(agent: AssistantAgent, watch: _Watch, renderer: Renderer, chosen: Arguments) -> int:
    task = sys.stdin.read() if chosen.task == "-" else chosen.task
    if not task.strip():
        raise UsageError("the task is empty; say what to do")
    return _ended(agent, await watch.task(agent.run_stream(task), renderer), chosen)


async def _resume(agent: AssistantAgent, watch: _Watch, renderer: Renderer, chosen: Arguments) -> int:
    return _ended(agent, await watch.task(agent.resume_stream(), renderer), chosen)


async def _chat(agent: AssistantAgent, watch: _Watch, renderer: Renderer, chosen: Arguments) -> int:
    """One sandbox for all of it; the end of the input ends it."""
    code = 0
    async with agent:
        while (line := await _read_line(chosen)) is not None:
            if line.strip():
                code = _ended(agent, await watch.task(agent.run_stream(line), renderer), chosen)
    return code


async def _read_line(chosen: Arguments) -> str | None:
    if os.isatty(0) and not chosen.json:
        print(paint("> ", BOLD), end="", flush=True)
    line = await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
    return line.rstrip("\n") if line else None


def _ended(agent: AssistantAgent, result: TaskResult[object], chosen: Arguments) -> int:
    save_state(agent, chosen.state)
    stop = result.stop_reason
    if stop.kind is Stop.APPROVAL_PENDING and not chosen.json:
        say(f"to go on: hood approvals approve {stop.approval}, then hood agent resume --state {chosen.state} ...")
    if stop.kind is Stop.CANCELLED:
        return exitcodes.INTERRUPTED
    return 0 if stop.kind is Stop.DONE else exitcodes.PROBLEM_FOUND
