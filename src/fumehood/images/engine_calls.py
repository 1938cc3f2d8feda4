"""Calls to an engine from code that blocks: any, until the caller ends it; and for the root file system of an image."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import anyio

from fumehood.backends.docker.engine import Engine, ImageFacts
from fumehood.backends.docker.errors import EngineError, ImageMissingError, speaking_to
from fumehood.policy import Policy

T = TypeVar("T")
_HEARTBEAT_SECONDS = 0.1


def with_engine(policy: Policy, work: Callable[[Engine], Awaitable[T]], heartbeat: Callable[[], None]) -> T:
    """What `work` returns. Whatever `heartbeat` raises, several times a second, ends it."""
    return anyio.run(_with_engine, policy, work, heartbeat)


async def _with_engine(policy: Policy, work: Callable[[Engine], Awaitable[T]], heartbeat: Callable[[], None]) -> T:
    engine = Engine(policy.docker)
    task = asyncio.ensure_future(work(engine))
    try:
        while not task.done():
            await asyncio.wait({task}, timeout=_HEARTBEAT_SECONDS)
            heartbeat()
        return task.result()
    finally:
        task.cancel()
        await asyncio.wait({task})
        await engine.close()


_CHUNK_BYTES = 1024 * 1024
_FOREVER = None


async def fetch_base(engine: Engine, reference: str, progress: Callable[[str], None]) -> ImageFacts:
    """The image, from a registry if the engine does not have it yet."""
    try:
        return await engine.image(reference)
    except ImageMissingError:
        progress(f"fetching {reference}")
    try:
        with speaking_to(engine.host):
            await engine.client.images.pull(reference, timeout=_FOREVER)
    except EngineError as error:
        raise EngineError(
            f"image {reference!r} is not on the engine at {engine.host}, and cannot be fetched ({error}). Load it "
            "there (`docker load`), or leave --base away: the image is then made from Debian packages."
        ) from error
    return await engine.image(reference)


async def export_root(engine: Engine, image: ImageFacts, path: Path) -> None:
    """Writes an image's root as one archive, out of a container that is made for it and never started."""
    with speaking_to(engine.host), path.open("wb") as file:
        async with (
            engine.unstarted_container(image) as container,
            # The client library has no name for this call.
            engine.client._query(f"containers/{container}/export", "GET", timeout=_FOREVER) as response,
        ):
            async for data in response.content.iter_chunked(_CHUNK_BYTES):
                file.write(data)
