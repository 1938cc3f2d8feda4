"""A worker: offers the sandboxes of its host to the servers of a cluster, until it gets the order to end.

What it cannot be sure of it ends: the sandboxes of a server that is not heard any more, and all of them when its own
lease cannot be renewed.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from fumehood.cluster import subjects
from fumehood.cluster.claims import account_of, read_user_token
from fumehood.cluster.connection import close, connect, flush, subscribe
from fumehood.cluster.credentials import MemberCredentials
from fumehood.cluster.folder import FOLDER
from fumehood.cluster.lease import LeaseTimes, TakenOverError, WorkerLease, now
from fumehood.cluster.worker_service import WorkerOffer, WorkerService
from fumehood.errors import LostError

if TYPE_CHECKING:
    from nats.aio.msg import Msg

    from fumehood.cluster.nats_client import NatsClient

_CHECKPOINT_SECONDS = 5.0
_log = logging.getLogger(__name__)


class ClusterWorker:
    service_type = WorkerService

    def __init__(
        self, credentials: MemberCredentials, folder: Path, offer: WorkerOffer, times: LeaseTimes | None = None
    ) -> None:
        """Whom it serves is in its credentials."""
        FOLDER.make(folder)
        claims = read_user_token(credentials.user, account_of(credentials.user))
        offer = replace(offer, tenants=claims.tenants)
        self._credentials, self._times = credentials, times or LeaseTimes()
        self._service = self.service_type(credentials.name, folder, offer, self._open_epoch, self._times)
        self._lease: WorkerLease | None = None
        self._next_checkpoints = 0.0
        self._announce, self._stop = asyncio.Event(), asyncio.Event()

    @property
    def name(self) -> str:
        return self._credentials.name

    def stop(self) -> None:
        """It opens nothing more, and waits for the end of what is open for a time."""
        self._stop.set()

    async def run(self, drain_seconds: float, ready: Callable[[], object] = lambda: None) -> None:
        """Until `stop`, or until a server says so. `ready` is called when servers can use it."""
        client = self._service.client = await connect(self._credentials, disconnected=self._service.lose_carriers)
        lease = self._lease = WorkerLease(client, self.name, self._times)
        tasks: list[asyncio.Task[None]] = []
        try:
            await lease.listen()
            await self._begin(client, lease)
            await subscribe(client, subjects.up(self.name, "*", "*", "*"), self._service.take)
            await subscribe(client, subjects.beat("*"), self._on_server_alive)
            await subscribe(client, subjects.order(self.name), self._on_order)
            await flush(client)
            works = self._keep_lease(client, lease), self._tend(client), self._drain(drain_seconds)
            tasks = [asyncio.ensure_future(work) for work in works]
            ready()
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.shield(self._end(client))

    async def _begin(self, client: NatsClient, lease: WorkerLease) -> None:
        """The first epoch. Waits for the first server of the cluster, which makes the list of workers."""
        while not self._stop.is_set():
            try:
                await lease.begin(self._entry(client))
                return
            except LostError as error:
                _log.warning("%s; is a server of the cluster running?", error)
                await self._pause(self._times.renew)

    async def _drain(self, seconds: float) -> None:
        await self._stop.wait()
        self._service.is_draining = True
        self._announce.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._service.wait_until_empty()

    async def _end(self, client: NatsClient) -> None:
        self._service.is_draining = True
        await self._service.close_all("the worker ends")
        await self._report(client)
        await self._service.end()
        await close(client)

    def _open_epoch(self) -> int | None:
        lease = self._lease
        return lease.epoch if lease is not None and lease.seconds_left > 0 else None

    def _entry(self, client: NatsClient) -> dict[str, Any]:
        own = {"token": self._credentials.user, "client": client.client_id}
        return own | self._service.describe()

    async def _keep_lease(self, client: NatsClient, lease: WorkerLease) -> None:
        """Does nothing else: a disk or a sandbox that hangs must not cost the lease, nor delay the end of it."""
        while True:
            left = lease.seconds_left
            await self._pause(min(self._times.renew, left) if left > 0 else self._times.renew)
            if client.is_closed:
                raise LostError("NATS has closed the connection for good; was this worker removed from the cluster?")
            try:
                if not await self._renew(client, lease):
                    await self._begin_anew(client, lease)
            except TakenOverError:
                await self._service.close_all("another process has taken its place")
                raise
            except LostError as error:
                _log.warning("%s", error)

    async def _renew(self, client: NatsClient, lease: WorkerLease) -> bool:
        """False if the lease is over, as soon as it is: NATS may take longer to say nothing."""
        if (left := lease.seconds_left) <= 0:
            return False
        try:
            async with asyncio.timeout(left):
                await lease.renew(self._entry(client))
        except TimeoutError:
            return False
        return True

    async def _begin_anew(self, client: NatsClient, lease: WorkerLease) -> None:
        """Nothing of the old epoch is left when the new one begins."""
        await self._service.close_all("its lease could not be renewed")
        await lease.begin(self._entry(client))

    async def _pause(self, seconds: float) -> None:
        self._announce.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._announce.wait()

    async def _tend(self, client: NatsClient) -> None:
        while True:
            await asyncio.sleep(self._times.renew)
            await self._service.close_abandoned()
            await self._report(client)

    def _on_order(self, message: Msg) -> None:
        """Of an epoch that a server holds for lost, what is here ends, too."""
        order = _read_order(message.data)
        if self._lease is not None and order.get("fence") == self._lease.epoch:
            _log.warning("a server holds this worker for lost")
            self._lease.expire()
            self._announce.set()
        if order.get("drain") is True:
            self._stop.set()

    def _on_server_alive(self, message: Msg) -> None:
        """A server says that a process of its lives."""
        self._service.note_alive((message.subject.rpartition(".")[2], message.data.decode("ascii", "replace")))

    async def _report(self, client: NatsClient) -> None:
        """To servers that have opened sandboxes of the tenant; kept for the next time while NATS is away."""
        from nats.errors import Error

        if not client.is_connected:
            return
        for report in [*self._service.take_used(), *await self._new_checkpoints()]:
            for server, instance in self._service.owners_of(report):
                try:
                    await client.publish(subjects.report(server, self.name, instance), json.dumps(report).encode())
                except (Error, OSError) as error:
                    _log.warning("a report to server %s is lost: %s", server, error)

    async def _new_checkpoints(self) -> list[dict[str, Any]]:
        if now() < self._next_checkpoints and not self._service.is_draining:
            return []
        self._next_checkpoints = now() + _CHECKPOINT_SECONDS
        return await asyncio.to_thread(self._service.new_checkpoints)


def _read_order(data: bytes) -> dict[str, Any]:
    """Nothing for what is not an order; JetStream's acknowledgements can be sent here, too."""
    try:
        order: object = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", order) if isinstance(order, dict) else {}
