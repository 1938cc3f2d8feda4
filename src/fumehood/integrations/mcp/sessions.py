"""Python that keeps its state: the sessions of one client, by name, and the tools for them.

Running code in a session is the tool `python`, as it is without one: a rule of a policy that is about `python` is about
both, and no other name leads around it.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fumehood.errors import UsageError
from fumehood.sandbox.sandbox import AsyncSandbox
from fumehood.sandbox.session import AsyncSession
from fumehood.tools import PYTHON, Risk, Tool, ToolResult, shaped
from fumehood.tools.running import PythonArguments, limits
from fumehood.tools.tool import Arguments
from fumehood.tools.watching import run_watched

MOST_SESSIONS = 8
_NAME = r"^[A-Za-z0-9_.-]{1,64}$"

Name = Annotated[str, Field(pattern=_NAME, description="The session's name.")]


class InSession(PythonArguments):
    session: Annotated[
        str | None,
        Field(pattern=_NAME, description="A session that start_session opened; without one the code starts afresh."),
    ] = None


class OneSession(Arguments):
    session: Name


class NewSession(Arguments):
    session: Name = "main"


class Sessions:
    def __init__(self) -> None:
        self._open: dict[str, AsyncSession] = {}

    def tools(self) -> tuple[Tool, ...]:
        return (
            Tool(
                PYTHON.name,
                f"{PYTHON.description} With `session`, variables and imports are kept too, and the value of the last "
                "expression and figures are shown.",
                InSession,
                PYTHON.risk,
                self._run,
            ),
            Tool(
                "start_session",
                "Open a Python session: what runs in it finds the variables and imports of what ran before.",
                NewSession,
                Risk.MEDIUM,
                self._start,
            ),
            Tool(
                "reset_session",
                "Begin a Python session anew, without its state; ends what runs in it.",
                OneSession,
                Risk.MEDIUM,
                self._reset,
            ),
            Tool(
                "close_session",
                "Close a Python session and forget its state; ends what runs in it.",
                OneSession,
                Risk.MEDIUM,
                self._close,
            ),
        )

    async def close(self) -> None:
        while self._open:
            await self._open.popitem()[1].close()

    async def _run(self, sandbox: AsyncSandbox, given: InSession) -> ToolResult:
        place = sandbox if given.session is None else self._find(given.session)
        return shaped(await run_watched(place, given.code, **limits(sandbox, given.timeout)))

    async def _start(self, sandbox: AsyncSandbox, given: NewSession) -> ToolResult:
        if given.session in self._open:
            raise UsageError(f"there is a session {given.session!r} already; use it, or reset_session")
        if len(self._open) >= MOST_SESSIONS:
            raise UsageError(f"there are {MOST_SESSIONS} sessions already, which is the most; close_session one")
        session = self._open[given.session] = sandbox.session()
        try:
            await session.__aenter__()
        except BaseException:
            self._open.pop(given.session, None)
            raise
        return ToolResult(f"Session {given.session} is open. Run code in it with python and session={given.session!r}.")

    async def _reset(self, sandbox: AsyncSandbox, given: OneSession) -> ToolResult:
        await self._find(given.session).restart()
        return ToolResult(f"Session {given.session} begins anew, without its state.")

    async def _close(self, sandbox: AsyncSandbox, given: OneSession) -> ToolResult:
        session = self._find(given.session)
        del self._open[given.session]
        await session.close()
        return ToolResult(f"Session {given.session} is closed.")

    def _find(self, name: str) -> AsyncSession:
        if name in self._open:
            return self._open[name]
        names = ", ".join(sorted(self._open)) or "none"
        raise UsageError(f"there is no session {name!r}; open it with start_session first. Open are: {names}")
