"""A worker that reserves a slot for each opening and has no sandbox in it, as a program: what placement alone costs.

`python -m benchmarks.slot_worker FOLDER SLOTS`. Lease, epochs, admission, messages and TLS are those of `hood worker`.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from fumehood import __version__
from fumehood.cluster.credentials import MemberCredentials
from fumehood.cluster.folder import WORKER, WORKER_FILE
from fumehood.cluster.hosted_sandbox import HostedSandbox
from fumehood.cluster.worker import ClusterWorker
from fumehood.cluster.worker_service import WorkerOffer, WorkerService
from fumehood.guest.contract.frames import Header


class ReservedSlot(HostedSandbox):
    async def open(self) -> None:
        pass

    def answer(self, linger: float) -> Header:
        return self._answer(linger, {})

    async def _leave_once(self, error: BaseException | None) -> None:
        self._forget(self)


class SlotService(WorkerService):
    sandbox_type = ReservedSlot


class SlotWorker(ClusterWorker):
    service_type = SlotService


def main() -> None:
    folder, slots = Path(sys.argv[1]), int(sys.argv[2])
    offer = WorkerOffer(slots, ("native",), {}, __version__)
    worker = SlotWorker(MemberCredentials.read(folder / WORKER_FILE), folder / WORKER, offer)
    asyncio.run(worker.run(0, lambda: print("is ready", flush=True)))


if __name__ == "__main__":
    main()
