"""A container that tests share one after the other: starting one takes as long as twenty runs in it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import engine

from fumehood import AsyncSandbox, FumehoodError, Policy


@asynccontextmanager
async def lent(opened: dict[str, AsyncSandbox], policy: Policy) -> AsyncIterator[AsyncSandbox]:
    """A sandbox with an empty workspace: one of those that are open, by the digest of their policy, or a new one.

    A container goes back to them, where nothing of a test is left in it.
    """
    sandbox = opened.pop(policy.digest, None) or await AsyncSandbox(policy).__aenter__()
    is_kept = False
    try:
        yield sandbox
        is_kept = policy.backend in engine.BACKENDS and policy.digest not in opened and await _is_emptied(sandbox)
    finally:
        if is_kept:
            opened[policy.digest] = sandbox
        else:
            await sandbox.__aexit__(None, None, None)


async def _is_emptied(sandbox: AsyncSandbox) -> bool:
    """Not one that the test has closed, lost or filled with what cannot be removed."""
    try:
        # Most tests leave nothing, and to look costs a tenth of a run.
        if not await sandbox.files.list():
            return True
        return (await sandbox.run(argv=["find", "/workspace", "-mindepth", "1", "-delete"])).ok
    except FumehoodError:
        return False
