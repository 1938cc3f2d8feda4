"""A folder of the application that artifacts of an agent are copied to."""

from __future__ import annotations

import os
from pathlib import Path

import anyio.to_thread

from fumehood.errors import UsageError
from fumehood.sandbox.async_sandbox import AsyncSandbox


class ArtifactFolder:
    """A folder for copies of artifacts. It replaces only files that it copied itself."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._taken: set[str] = set()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"the folder {str(path)!r} cannot be made: {error.strerror}") from error

    async def take(self, box: AsyncSandbox, path: str) -> None:
        target = self.path / path
        await anyio.to_thread.run_sync(self._make_room, path, target)
        await box.files.download(path, target)
        self._taken.add(path)

    def _make_room(self, path: str, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        if path in self._taken:
            target.unlink(missing_ok=True)
