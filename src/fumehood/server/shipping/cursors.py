"""Cursors: how far each chain has got to each sink, in a file that is replaced as a whole and on the disk."""

from __future__ import annotations

import json
import os
from pathlib import Path

from fumehood.errors import AuditError
from fumehood.frozen import frozen


@frozen
class Position:
    log: str
    seq: int


class CursorFile:
    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> Position | None:
        """None if nothing was sent yet. One that cannot be read is an error: guessing would lose or repeat records."""
        try:
            data: object = json.loads(self._path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise self._unreadable(str(error)) from error
        match data:
            case {"log": str(log), "seq": int(seq)}:
                return Position(log, seq)
            case _:
                raise self._unreadable("it is not a cursor")

    def write(self, position: Position) -> None:
        draft = self._path.with_suffix(".new")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump({"log": position.log, "seq": position.seq}, file)
            file.flush()
            os.fsync(descriptor)
        os.replace(draft, self._path)
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _unreadable(self, why: str) -> AuditError:
        return AuditError(f"the cursor {self._path} cannot be read: {why}; remove it to send the whole log again")
