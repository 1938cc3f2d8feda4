"""One client's place: a sandbox, the toolbox that works in it, and the sessions there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio

from fumehood.integrations.mcp.consent import Consent
from fumehood.integrations.mcp.sessions import Sessions
from fumehood.integrations.mcp.settings import Settings
from fumehood.sandbox.sandbox import AsyncSandbox
from fumehood.tools import EDIT_FILE, LIST_FILES, READ_FILE, SHELL, WRITE_FILE, Tool, Toolbox
from fumehood.tools.filters import Pipeline


@dataclass(frozen=True, slots=True)
class Place:
    sandbox: AsyncSandbox
    toolbox: Toolbox
    filters: Pipeline
    consent: Consent | None


def tools(sessions: Sessions) -> tuple[Tool, ...]:
    python, *others = sessions.tools()
    return (python, SHELL, READ_FILE, WRITE_FILE, EDIT_FILE, LIST_FILES, *others)


@asynccontextmanager
async def open_place(settings: Settings) -> AsyncIterator[Place]:
    sessions = Sessions()
    async with AsyncSandbox(settings.policy, gated=True, progress=settings.report) as box:
        consent = Consent(settings.policy, box.trail) if settings.policy.approvals else None
        filters = Pipeline(settings.policy, trail=box.trail)
        try:
            yield Place(box, Toolbox(box, *tools(sessions), gate=consent, filters=filters), filters, consent)
        finally:
            with anyio.CancelScope(shield=True):
                await sessions.close()
