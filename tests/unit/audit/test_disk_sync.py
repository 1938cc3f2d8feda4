"""One sync for all that wait at the same moment, and no success after a failure."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from unit.audit.logs import Told, make_log

from fumehood.audit import Trail
from fumehood.audit.disk_sync import DiskSync
from fumehood.errors import AuditError

_WAITING = 8


class SlowDisk:
    """A disk whose syncs last until they are let go."""

    def __init__(self) -> None:
        self.begun, self.let_go = threading.Semaphore(0), threading.Semaphore(0)
        self.syncs = 0

    def fdatasync(self, descriptor: int) -> None:
        self.syncs += 1
        self.begun.release()
        self.let_go.acquire()


def in_threads(count: int, job: Callable[[], None]) -> list[threading.Thread]:
    threads = [threading.Thread(target=job) for _ in range(count)]
    for thread in threads:
        thread.start()
    return threads


def test_who_waits_at_the_same_moment_shares_a_sync_and_none_is_covered_by_one_that_had_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = SlowDisk()
    monkeypatch.setattr(os, "fdatasync", disk.fdatasync)
    sync = DiskSync(0)
    first = in_threads(1, sync.wait)
    disk.begun.acquire()
    others = in_threads(_WAITING, sync.wait)
    while sync._arrived < 1 + _WAITING:
        threading.Event().wait(0.001)
    disk.let_go.release()
    disk.begun.acquire()  # a second one begins: the first does not count for those that came after it began
    first[0].join()
    assert all(thread.is_alive() for thread in others)
    disk.let_go.release()
    for thread in others:
        thread.join()
    assert disk.syncs == 2


@pytest.mark.anyio
async def test_after_a_sync_that_failed_nothing_is_called_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel reports a failure once; the next sync would succeed, and the data is lost all the same."""
    log = await make_log(tmp_path / "log")
    synced, written = Trail(log, who="me", synced=True), Trail(log, who="me")
    with monkeypatch.context() as broken:
        broken.setattr(os, "fdatasync", failing)
        with pytest.raises(AuditError, match=r"the disk has failed \(Input/output error\)"):
            await synced.write(Told("lost"))
    with pytest.raises(AuditError, match="the disk has failed"):
        await synced.write(Told("after it"))
    with pytest.raises(AuditError, match="the disk has failed"):
        await anyio.to_thread.run_sync(log.checkpoint)
    await written.write(Told("with the operating system, as before"))


def failing(descriptor: int) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))
