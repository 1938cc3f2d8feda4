"""The server of Inspect's own tools, kept in the background of a sandbox."""

from __future__ import annotations

import anyio
from inspect_ai.util._sandbox._cli import SANDBOX_CLI

from fumehood.events import Finished, Stdout
from fumehood.results import RunResult
from fumehood.sandbox.interface import AnyBackgroundRun, AnySandbox

_READY = b"the tool server is up\n"
# Waits for its standard input, which ends with the sandbox.
_KEEP = f'"$0" start-server >&2 || exit; echo "{_READY.decode().strip()}"; read -r _'


class ToolServer:
    """The server that Inspect brings into a sandbox for some of its tools: `bash_session`, `exec_remote`, MCP servers.

    Inspect starts it with one command and speaks to it with later ones. Here a command ends with all that it started,
    so the server is kept in a run of its own, in the background, for as long as the policy gives a run.
    """

    def __init__(self, sandbox: AnySandbox) -> None:
        self._sandbox = sandbox
        self._turn = anyio.Lock()
        self._run: AnyBackgroundRun | None = None

    @staticmethod
    def is_wanted(cmd: list[str]) -> bool:
        return cmd == [SANDBOX_CLI, "start-server"]

    async def revive(self, cmd: list[str]) -> None:
        """Before a command that speaks to the server: one that has run into a limit is started anew, without state."""
        if cmd[:1] == [SANDBOX_CLI] and self._run is not None:
            await self.start()

    async def start(self) -> RunResult | None:
        """Returns when it can be spoken to: None, or how it failed."""
        async with self._turn:
            if self._run is not None and await self._run.poll() is None:
                return None
            self._run = await self._sandbox.start(argv=["/bin/sh", "-c", _KEEP, SANDBOX_CLI])
            try:
                return await _until_ready(self._run)
            except BaseException:
                with anyio.CancelScope(shield=True):
                    await self._run.kill()
                raise


async def _until_ready(run: AnyBackgroundRun) -> RunResult | None:
    written = b""
    async for event in run.stream():
        if isinstance(event, Stdout):
            written += event.data
        if isinstance(event, Finished):
            return event.result
        if written.endswith(_READY):
            return None
    return None
