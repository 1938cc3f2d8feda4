"""Files on their way out to a client of a server: in chunks, so that no file is ever held in memory."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from fumehood.server.sandboxes.open_sandbox import OpenSandbox


async def begin_transfer(opened: OpenSandbox, chunks: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """The same chunks, when the first is there: what is refused is refused before an answer begins."""
    try:
        first = await anext(chunks, b"")
    except BaseException:
        await chunks.aclose()
        raise
    return _chunks(opened, first, chunks)


async def _chunks(
    opened: OpenSandbox, first: bytes, chunks: AsyncGenerator[bytes, None]
) -> AsyncGenerator[bytes, None]:
    """The sandbox is in use until the last."""
    opened.begin_use()
    try:
        async with aclosing(chunks):
            yield first
            async for chunk in chunks:
                yield chunk
    finally:
        opened.end_use()
