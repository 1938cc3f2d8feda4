"""Removes containers whose owner is gone: the second net, for when the first (the closed stream) did not catch them."""

from __future__ import annotations

from contextlib import suppress

import anyio

from fumehood.backends.docker.engine import Engine
from fumehood.backends.docker.ownership import OWNER, is_gone
from fumehood.backends.docker.troubles import speaking_to
from fumehood.errors import FumehoodError
from fumehood.policy.docker import Docker


def remove_ownerless() -> list[str]:
    """Their names. An engine that is not there has none."""
    with suppress(FumehoodError):
        return anyio.run(_remove_ownerless)
    return []


async def _remove_ownerless() -> list[str]:
    engine = Engine(Docker())
    removed: list[str] = []
    try:
        with speaking_to(engine.host):
            for container in await engine.client.containers.list(all=True, filters={"label": [OWNER]}):
                details = await container.show()
                if is_gone(details["Config"]["Labels"][OWNER]):
                    await container.delete(force=True)
                    removed.append(details["Name"].removeprefix("/"))
    finally:
        await engine.close()
    return removed
