"""Removes containers whose owner is gone: the second net, for when the first (the closed stream) did not catch them.

And interpreters that no container uses: the next container that needs one gets a new one.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

import anyio

from fumehood.backends.docker.engine import Engine
from fumehood.backends.docker.errors import speaking_to
from fumehood.backends.docker.interpreter import remove_unused
from fumehood.backends.docker.labels import OWNER
from fumehood.errors import FumehoodError
from fumehood.host.processes import is_gone
from fumehood.policy.sections import Docker


class Removed(NamedTuple):
    """The names of removed containers and volumes."""

    containers: list[str]
    volumes: list[str]


def remove_ownerless() -> Removed:
    """An engine that is not there has none."""
    with suppress(FumehoodError):
        return anyio.run(_remove_ownerless)
    return Removed([], [])


async def _remove_ownerless() -> Removed:
    engine = Engine(Docker())
    try:
        with speaking_to(engine.host):
            return Removed(await _remove_containers(engine), await remove_unused(engine))
    finally:
        await engine.close()


async def _remove_containers(engine: Engine) -> list[str]:
    removed: list[str] = []
    for container in await engine.client.containers.list(all=True, filters={"label": [OWNER]}):
        details = await container.show()
        if is_gone(details["Config"]["Labels"][OWNER]):
            await container.delete(force=True, v=True)
            removed.append(details["Name"].removeprefix("/"))
    return removed
