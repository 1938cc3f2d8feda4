"""Waiting for the disk: one sync for all that wait at the same moment, and none after one that failed."""

from __future__ import annotations

import os
import threading


class DiskSync:
    """Group sync of one file. A thread that arrives while another one syncs waits for the next sync, with all others
    that do: the one under way may have begun before its data was written.

    The kernel reports a failure once, forgets the data that it could not write, and calls the next sync a success. So
    after a failure every sync fails, until the file is opened anew.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._arriving, self._syncing = threading.Lock(), threading.Lock()
        self._arrived = self._synced = 0
        self._failure: OSError | None = None

    def wait(self) -> None:
        """Whatever was written to the file before this was called is on the disk; OSError."""
        with self._arriving:
            self._arrived = mine = self._arrived + 1
        with self._syncing:
            if self._failure is not None:
                raise self._failure
            if self._synced < mine:
                self._sync()

    def _sync(self) -> None:
        with self._arriving:
            covered = self._arrived
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            self._failure = error
            raise
        self._synced = covered
