"""A root file system from another image: taken out of a container that is made for it and never started."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from fumehood.backends.docker.engine import Engine, ImageFacts
from fumehood.backends.docker.ownership import labels
from fumehood.backends.docker.troubles import EngineError, ImageMissingError, speaking_to

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
    async with stopped_container(engine, image) as container:
        with speaking_to(engine.host), path.open("wb") as file:
            # The client library has no name for this call.
            async with engine.client._query(f"containers/{container.id}/export", "GET", timeout=_FOREVER) as response:
                async for data in response.content.iter_chunked(_CHUNK_BYTES):
                    file.write(data)


@asynccontextmanager
async def stopped_container(engine: Engine, image: ImageFacts) -> AsyncIterator[Any]:
    configuration = {"Image": image.digest, "Cmd": ["never"], "Labels": labels("none"), "NetworkDisabled": True}
    with speaking_to(engine.host):
        container = await engine.client.containers.create(configuration)
    try:
        yield container
    finally:
        with anyio.CancelScope(shield=True), speaking_to(engine.host):
            await container.delete(force=True)
