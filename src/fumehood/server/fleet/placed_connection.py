"""The connection to a sandbox that is placed when it is opened: workers are asked in turn, until one says yes.

Only the opening is tried elsewhere. A sandbox that is open has one home; when that is lost, so is the sandbox.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from fumehood.cluster.carrier import SubjectCarrier
from fumehood.errors import DeniedError, FumehoodError, HostUnavailableError, LostError, UnenforceableError, UsageError
from fumehood.guest.contract.frames import Header
from fumehood.remote.carrier import MessageCarrier
from fumehood.remote.connection import SandboxConnection
from fumehood.remote.memory import MemoryAccount
from fumehood.server.fleet.choice import SandboxNeeds
from fumehood.server.fleet.known_worker import KnownWorker

_MOST_ASKED = 3
_OPEN_SECONDS = 900.0
"""Environments are built and images pulled meanwhile."""
CLOSE_SECONDS = 60.0
_PLACE = "a worker of the cluster"


class WorkerChooser(Protocol):
    """What a connection asks of the fleet."""

    async def candidates(self, needs: SandboxNeeds, refused: set[str]) -> list[KnownWorker]:
        """Best first, of those that have not refused yet; waits for room. NoCapacityError if there is none in time."""
        ...

    async def dial(self, worker: KnownWorker) -> SubjectCarrier: ...

    def settle(self, connection: PlacedConnection) -> None:
        """It is open."""
        ...

    def release(self, connection: PlacedConnection) -> None: ...

    def note_failed(self, worker: KnownWorker, needs: SandboxNeeds, reason: str) -> None: ...


class PlacedConnection(SandboxConnection):
    """`lost` is called once, with the reason, when the worker that has the sandbox is lost.

    A worker that lives and does not answer holds nothing up for ever: neither an opening nor the end of a sandbox.
    """

    def __init__(
        self,
        fleet: WorkerChooser,
        needs: SandboxNeeds,
        opening: Header,
        lost: Callable[[str], object],
        memory: MemoryAccount,
    ) -> None:
        super().__init__(_PLACE, self._dial_worker, opening, account=memory)
        self._fleet, self._needs, self._opening, self.lost = fleet, needs, opening, lost
        self.worker: KnownWorker | None = None

    async def open(self) -> None:
        """An opening that was refused waits for room; one that has failed on all workers that were asked fails."""
        refused: set[str] = set()
        while True:
            failure: FumehoodError | None = None
            for worker in (await self._fleet.candidates(self._needs, refused))[:_MOST_ASKED]:
                refused.add(worker.name)
                try:
                    await self._open_at(worker)
                    return
                except HostUnavailableError:
                    worker.note_full()
                except UnenforceableError as error:
                    failure = _on(worker, error)
                except (UsageError, DeniedError):
                    raise
                except LostError as error:
                    worker.note_failure(self._needs.tenant, str(error))
                    failure = error
                except FumehoodError as error:
                    self._fleet.note_failed(worker, self._needs, str(error))
                    failure = error
            if failure is not None:
                raise failure

    async def _open_at(self, worker: KnownWorker) -> None:
        self.worker, self._requested = worker, self._opening | {"epoch": worker.epoch}
        worker.reserve()
        try:
            async with asyncio.timeout(_OPEN_SECONDS):
                await super().open()
            await self._refuse_other_policy(worker)
        except TimeoutError:
            worker.give_back()
            raise LostError(f"worker {worker.name} has not answered for {_OPEN_SECONDS:g} s") from None
        except BaseException:
            worker.give_back()
            raise
        worker.note_success(self._needs.tenant)
        self._fleet.settle(self)

    async def _refuse_other_policy(self, worker: KnownWorker) -> None:
        """Forks and the next use of a name would have it, with all secrets that it names."""
        if self.opened.policy.digest != self._needs.policy_digest:
            await super().close(is_failing=True)
            raise LostError(f"worker {worker.name} has opened another policy than it was asked for")

    async def close(self, *, is_failing: bool = False) -> None:
        try:
            with self.ending_in(CLOSE_SECONDS):
                await super().close(is_failing=is_failing)
        finally:
            self._fleet.release(self)

    @contextmanager
    def ending_in(self, seconds: float) -> Iterator[None]:
        """If the block takes longer, the connection is given up. The worker closes what has none after a while."""
        task = self._task
        timer = None if task is None else asyncio.get_running_loop().call_later(seconds, task.cancel)
        try:
            yield
        finally:
            if timer is not None:
                timer.cancel()

    async def _dial_worker(self) -> MessageCarrier:
        assert self.worker is not None
        return await self._fleet.dial(self.worker)


def _on(worker: KnownWorker, error: UnenforceableError) -> UnenforceableError:
    """The remedy is for a host, and there are several."""
    reason = f"{error.reason}, on worker {worker.name}"
    return UnenforceableError(error.control, backend=error.backend, reason=reason, remedy=error.remedy)
