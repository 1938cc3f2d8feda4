"""One container with a guest in it that is ready for runs."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from fumehood.backends.docker import socket_buffers
from fumehood.backends.docker.configuration import Design, container_configuration, guest_specification
from fumehood.backends.docker.engine import Engine, is_local
from fumehood.backends.docker.errors import EngineError, speaking_to
from fumehood.backends.docker.labels import container_labels
from fumehood.backends.relay import bootstrap
from fumehood.backends.relay.bridge import Bridge
from fumehood.errors import StepFailedError
from fumehood.guest.contract import wire
from fumehood.guest.contract.limits import SOCKET_PART_OF_MEMORY

_START_SECONDS = 60.0
# A guest that is there answers within this; with the host's grace it is less than a second.
_ANSWER_SECONDS = 0.7
# One that is not stopped may have a machine that is overloaded, or an engine far away.
_SLOW_SECONDS = 10.0
# Every run has a supervisor of its own from its beginning: there is nothing that a run would have to wait for.
_OVERTIME_SECONDS = 15.0


class Container:
    """Belongs to the backend's event loop."""

    def __init__(
        self, engine: Engine, container: Any, bridge: Bridge, word: wire.Message, *, limits_sockets: bool
    ) -> None:
        self._engine = engine
        self._container = container
        self.bridge = bridge
        self.loop = asyncio.get_running_loop()
        self.python: tuple[int, ...] = tuple(word["ready"])
        self.layers: tuple[str, ...] = tuple(map(str, word["confined_by"]))
        self.limits_sockets = limits_sockets
        """Whether the buffers of sockets are within its memory, or have a limit of their own."""

    @property
    def is_alive(self) -> bool:
        return not self.bridge.is_over

    async def rest(self) -> None:
        """A container that waits costs nothing."""

    async def answers(self) -> bool:
        return self.is_alive and await self.bridge.answers(_ANSWER_SECONDS)

    async def is_lost(self, overdue_seconds: float) -> bool:
        """Whether its guest does not answer, or a run goes on although the guest should have ended it long ago."""
        if overdue_seconds > _OVERTIME_SECONDS:
            return True
        if await self.answers():
            return False
        return await self._is_stopped() or not await self.bridge.answers(_SLOW_SECONDS)

    async def _is_stopped(self) -> bool:
        """Whether the container is paused or stopped; False also where the engine does not answer."""
        with suppress(EngineError, OSError, TimeoutError, LookupError):
            async with asyncio.timeout(_ANSWER_SECONDS):
                with speaking_to(self._engine.host):
                    state: Any = (await self._container.show())["State"]
            return bool(state["Paused"]) or (is_local(self._engine.host) and _is_stopped(state["Pid"]))
        return False

    async def close(self) -> None:
        """When this returns nothing of it is left, or the engine does not answer."""
        await self.bridge.close()
        await _remove(self._container)


def _is_stopped(process: int) -> bool:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] in ("T", "t")


async def start_container(engine: Engine, design: Design) -> Container:
    with speaking_to(engine.host):
        container = await _created(engine, design)
    try:
        async with asyncio.timeout(_START_SECONDS):
            return await _started(engine, container, design)
    except TimeoutError as error:
        await _remove(container)
        raise StepFailedError("starting a container", f"its guest was not ready in {_START_SECONDS:.0f} s") from error
    except BaseException:
        await _remove(container)
        raise


async def _created(engine: Engine, design: Design) -> Any:
    """Creates the container, also after cancellation: one that is never started does not remove itself."""
    configuration = container_configuration(design, container_labels(design.policy.digest, design.tenant))
    creating = asyncio.ensure_future(engine.client.containers.create(configuration))
    try:
        return await asyncio.shield(creating)
    except asyncio.CancelledError:
        with anyio.CancelScope(shield=True):
            await _remove(await creating)
        raise


async def _started(engine: Engine, container: Any, design: Design) -> Container:
    stream = container.attach(stdin=True, stdout=True, stderr=True)
    try:
        with speaking_to(engine.host):
            await stream.__aenter__()
            await container.start()
    except EngineError as error:
        await stream.close()
        raise _explained(error, design) from error
    except BaseException:
        await stream.close()
        raise
    bridge = Bridge(stream, partial(engine.ran_out_of_memory, container.id))
    try:
        bridge.send_raw(bootstrap.packed(guest_specification(design)))
        word = await bridge.wait_ready("a container")
        with speaking_to(engine.host):
            limits_sockets = await _limit_sockets(container, design)
        return Container(engine, container, bridge, word, limits_sockets=limits_sockets)
    except BaseException:
        await bridge.close()
        raise


async def _limit_sockets(container: Any, design: Design) -> bool:
    """Limits socket buffers, unless they count as memory, as with a kernel of its own; returns whether it could."""
    if design.has_own_kernel or socket_buffers.are_counted_as_memory(design.facts):
        return True
    if not socket_buffers.can_be_limited(design.facts):
        return False
    details = await container.show()
    most = design.policy.resources.memory // SOCKET_PART_OF_MEMORY
    return socket_buffers.limit(container.id, details["State"]["Pid"], most)


class PythonMissingError(EngineError):
    """There is no interpreter for the guest where it was looked for."""


def _explained(error: EngineError, design: Design) -> EngineError:
    text = str(error)
    if "executable file not found" in text or "no such file or directory" in text:
        reason = "the one that was lent to it has been removed meanwhile; try again" if design.lent else text
        return PythonMissingError(f"image {design.image.reference!r} has no python3, which the guest needs: {reason}.")
    if "exec format error" in text:
        return EngineError(f"image {design.image.reference!r} is for another machine than {design.facts.machine}.")
    return error


async def _remove(container: Any) -> None:
    """Removes the container; one that ended has removed itself, which is not an error."""
    import aiohttp
    from aiodocker import DockerError

    # A cancelled task would be cancelled again at each wait, and leave the container behind.
    with anyio.CancelScope(shield=True), suppress(DockerError, aiohttp.ClientError, OSError, TimeoutError):
        async with asyncio.timeout(10.0):
            await _resume(container)
            await container.delete(force=True, v=True)


async def _resume(container: Any) -> None:
    """Lets a paused container go on: until then no signal ends it, and the engine waits ten seconds for gVisor's."""
    import aiohttp
    from aiodocker import DockerError

    # Almost always an error, since it is not paused; and after a restart of the engine the connection may be stale,
    # which only the request to delete survives.
    with suppress(DockerError, aiohttp.ClientError, OSError):
        await container.unpause()
