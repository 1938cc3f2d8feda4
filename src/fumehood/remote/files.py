"""Files of a sandbox that is elsewhere."""

from __future__ import annotations

import os

from fumehood.policy import Bytes, read_size
from fumehood.remote import calls
from fumehood.remote.conversations import Conversations
from fumehood.remote.values import unpack_entry
from fumehood.sandbox.files.async_files import MAX_READ_BYTES
from fumehood.sandbox.files.entries import FileEntry
from fumehood.sandbox.files.paths import AnyPath


class RemoteFiles:
    """As `AsyncFiles`."""

    def __init__(self, conversations: Conversations) -> None:
        self._conversations = conversations

    async def write(
        self, path: AnyPath, data: bytes | str, *, executable: bool = False, as_program: bool = False
    ) -> None:
        content = data.encode() if isinstance(data, str) else data
        header = {"path": os.fspath(path), "executable": executable, "as_program": as_program}
        await calls.ask(self._conversations, {"do": "files.write", **header}, content)

    async def read(self, path: AnyPath, *, max_bytes: Bytes = MAX_READ_BYTES) -> bytes:
        header = {"path": os.fspath(path), "max_bytes": read_size(max_bytes, "max_bytes")}
        return (await calls.ask(self._conversations, {"do": "files.read", **header})).body

    async def list(self, path: AnyPath = "") -> list[FileEntry]:
        return [entry for _, entry in await self._entries({"do": "files.list", "path": os.fspath(path)})]

    async def outputs(self) -> dict[str, FileEntry]:
        return dict(await self._entries({"do": "files.outputs"}))

    async def _entries(self, header: dict[str, object]) -> list[tuple[str, FileEntry]]:
        entries: list[tuple[str, FileEntry]] = []
        async with calls.call(self._conversations, header) as conversation:
            while (message := await calls.next_answer(conversation)) is not None:
                entries.append((message.header.get("path", ""), unpack_entry(message.header["entry"])))
        return entries

    async def stat(self, path: AnyPath, *, follow: bool = False) -> FileEntry:
        message = await calls.ask(self._conversations, {"do": "files.stat", "path": os.fspath(path), "follow": follow})
        return unpack_entry(message.header["entry"])

    async def remove(self, path: AnyPath, *, recursive: bool = False) -> None:
        await calls.ask(self._conversations, {"do": "files.remove", "path": os.fspath(path), "recursive": recursive})

    async def mkdir(self, path: AnyPath, *, parents: bool = True) -> None:
        await calls.ask(self._conversations, {"do": "files.mkdir", "path": os.fspath(path), "parents": parents})
