"""The fleet: this server's connection to its cluster, the workers that it knows, and their loss.

A worker announces itself every second. That its process has ended NATS tells at once; one that hangs, or that the
network has cut off, is lost when its lease has run out. By then it has ended its sandboxes by itself.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fumehood.cluster import subjects
from fumehood.cluster.authority import ClusterAuthority
from fumehood.cluster.carrier import SubjectCarrier
from fumehood.cluster.claims import account_of, read_user_token
from fumehood.cluster.connection import close, connect, flush, subscribe
from fumehood.cluster.credentials import MemberCredentials
from fumehood.cluster.folder import AUTHORITY, SERVER_FILE
from fumehood.cluster.join import NewcomerAdmission
from fumehood.cluster.lease import STORED_HEADERS, LeaseTimes, make_workers_stream, now, stored_sequence
from fumehood.errors import LostError, SandboxError, UsageError
from fumehood.server.fleet.choice import SandboxNeeds, can_serve, may_take, rank_workers
from fumehood.server.fleet.fair_queue import WAIT_SECONDS, FairQueue
from fumehood.server.fleet.known_worker import KnownWorker
from fumehood.server.fleet.placed_connection import PlacedConnection
from fumehood.server.fleet.poison import PoisonedPolicies
from fumehood.server.fleet.worker_reports import WorkerReports

if TYPE_CHECKING:
    from nats.aio.msg import Msg

    from fumehood.cluster.nats_client import NatsClient

_STATUS = "Status"
"""The header of what NATS says itself: that no process hears a subject."""
_UNDECIDED = ("Server Shutdown", "Stale Connection", "Slow Consumer")
"""Why NATS closes connections of workers that may live, cut off, until their lease is over."""
_log = logging.getLogger(__name__)


class Fleet:
    """`reports` takes what workers report besides the messages of sandboxes."""

    def __init__(self, folder: Path, reports: WorkerReports, times: LeaseTimes | None = None) -> None:
        self._folder, self._reports, self._times = folder, reports, times or LeaseTimes()
        self._credentials = MemberCredentials.read(folder / SERVER_FILE)
        self._account = account_of(self._credentials.user)
        self._instance = secrets.token_hex(6)
        self._client: NatsClient | None = None
        self._observer: NatsClient | None = None
        self._workers: dict[str, KnownWorker] = {}
        self._carriers: dict[tuple[str, str], SubjectCarrier] = {}
        """By worker and channel."""
        self._connections: set[PlacedConnection] = set()
        self._channels = count(1)
        self.queue = FairQueue()
        """Of openings for which no worker has room."""
        self._poison = PoisonedPolicies()
        self._tasks: list[asyncio.Task[None]] = []
        self._orders: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Returns when it knows the workers that there are."""
        client = self._client = await connect(self._credentials, disconnected=self._lose_carriers)
        await make_workers_stream(client)
        await subscribe(client, subjects.down(self.name, "*", self._instance, "*"), self._on_message, headers=[_STATUS])
        await subscribe(client, subjects.stored("*"), self._on_entry, headers=STORED_HEADERS)
        if ClusterAuthority.is_at(self._folder / AUTHORITY):
            admission = NewcomerAdmission(ClusterAuthority(self._folder / AUTHORITY), client.send)
            await subscribe(client, subjects.join("*"), admission.answer)
        self._observer = await connect(self._credentials, is_observer=True)
        await subscribe(self._observer, f"$SYS.ACCOUNT.{self._account}.DISCONNECT", self._on_disconnected)
        await flush(self._observer)
        await flush(client)
        self._tasks = [asyncio.ensure_future(work) for work in (self._keep(client), self._reports.take_all())]
        await asyncio.sleep(1.2 * self._times.renew)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for client in (self._client, self._observer):
            if client is not None:
                await close(client)

    @property
    def name(self) -> str:
        return self._credentials.name

    @property
    def is_connected(self) -> bool:
        return self._client is not None and self._client.is_connected

    def describe(self) -> list[dict[str, object]]:
        """Those that are there, by name."""
        there = [worker for worker in self._workers.values() if worker.lost is None]
        return [worker.describe() for worker in sorted(there, key=lambda each: each.name)]

    # Placement.

    async def candidates(self, needs: SandboxNeeds, refused: set[str]) -> list[KnownWorker]:
        self._poison.check((needs.tenant, needs.policy_digest))
        if not any(can_serve(worker, needs) for worker in self._workers.values() if worker.lost is None):
            raise SandboxError(
                f"no worker of the cluster has the backend {needs.backend} for tenant {needs.tenant}; "
                "`hood workers` lists what there is"
            )
        # Those that wait already come first.
        found = [] if len(self.queue) else self._ranked(needs, refused)
        end, is_next = now() + WAIT_SECONDS, bool(refused)
        while not found:
            await self.queue.wait(needs, end - now(), is_next=is_next)
            refused.clear()
            is_next = True
            found = self._ranked(needs, refused)
        return found

    def _ranked(self, needs: SandboxNeeds, refused: set[str]) -> list[KnownWorker]:
        return [worker for worker in rank_workers(self._workers.values(), needs) if worker.name not in refused]

    def settle(self, connection: PlacedConnection) -> None:
        self._connections.add(connection)

    def release(self, connection: PlacedConnection) -> None:
        if connection in self._connections:
            self._connections.discard(connection)
            if connection.worker is not None:
                connection.worker.give_back()
                self._wake_for(connection.worker, 1)

    def note_failed(self, worker: KnownWorker, needs: SandboxNeeds, reason: str) -> None:
        worker.note_failure(needs.tenant, reason)
        self._poison.note((needs.tenant, needs.policy_digest), worker.name, reason)

    async def dial(self, worker: KnownWorker) -> SubjectCarrier:
        if worker.lost is not None:
            raise LostError(worker.lost)
        assert self._client is not None
        channel = f"{next(self._channels):x}"
        key = worker.name, channel
        carrier = SubjectCarrier(
            self._client,
            subjects.up(worker.name, self.name, self._instance, channel),
            lambda: self._carriers.pop(key, None),
            answer_to=subjects.down(self.name, worker.name, self._instance, channel),
        )
        self._carriers[key] = carrier
        return carrier

    # What workers say.

    def _on_message(self, message: Msg) -> None:
        _, _, _, worker, _, channel = message.subject.split(".")
        if subjects.is_report(channel):
            if (known := self._workers.get(worker)) is not None:
                self._reports.add(known, message.data)
            return
        carrier = self._carriers.get((worker, channel))
        if carrier is None:
            return  # of a carrier that is over
        if (message.headers or {}).get(_STATUS) == "503":
            carrier.lose(f"no process hears worker {worker}")
        else:
            carrier.deliver(message.data)

    def _on_entry(self, message: Msg) -> None:
        name = message.subject.rpartition(".")[2]
        if stored_sequence(message, name) is None:
            return
        try:
            self._update(name, json.loads(message.data))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, UsageError) as error:
            _log.warning("worker %s describes itself in a way that cannot be used: %s", name, error)

    def _update(self, name: str, entry: dict[str, Any]) -> None:
        known, epoch = self._workers.get(name), int(entry["epoch"])
        claims = read_user_token(str(entry["token"]), self._account)
        if claims.name != name:
            raise UsageError("the token is another member's")
        if known is not None and epoch < known.epoch:
            return
        if known is not None and epoch == known.epoch:
            if known.lost is not None:
                self._demand_fence(known)
                return
            known.update(entry)
        else:
            served = known.served if known is not None else set[str]()
            if known is not None:
                self._lose(known, f"worker {name} has begun anew")
            known = self._workers[name] = KnownWorker(claims, entry)
            known.served = served
        self._wake_for(known, known.free)

    def _wake_for(self, worker: KnownWorker, count: int) -> None:
        self.queue.wake(count, lambda needs: may_take(worker, needs))

    def _on_disconnected(self, message: Msg) -> None:
        """NATS says who, by the token that was shown; which of its connections, by its number."""
        event = json.loads(message.data)
        client, reason = event.get("client", {}), str(event.get("reason"))
        worker = self._workers.get(str(client.get("name_tag")))
        if worker is not None and worker.client == client.get("id") and not reason.startswith(_UNDECIDED):
            self._lose(worker, f"worker {worker.name} has ended ({reason})")

    async def _lose_carriers(self) -> None:
        for carrier in list(self._carriers.values()):
            carrier.lose("the connection to NATS is lost")

    # Loss.

    async def _keep(self, client: NatsClient) -> None:
        last, renew, lease = now(), self._times.renew, self._times.lease
        while True:
            await _quietly(client.publish(subjects.beat(self.name), self._instance.encode()))
            await asyncio.sleep(renew)
            stopped, last = now() - last - renew, now()
            for worker in list(self._workers.values()):
                # While this process did not run it received nothing.
                worker.seen += max(0.0, stopped)
                if worker.lost is None and now() - worker.seen > lease:
                    self._lose(worker, f"worker {worker.name} has not been heard for {lease:g} s")

    def _lose(self, worker: KnownWorker, reason: str) -> None:
        if worker.lost is not None:
            return
        worker.lost = reason
        _log.warning("%s; its sandboxes are lost", reason)
        self._demand_fence(worker)
        for (name, _), carrier in list(self._carriers.items()):
            if name == worker.name:
                carrier.lose(reason)
        for connection in [each for each in self._connections if each.worker is worker]:
            self._connections.discard(connection)
            connection.lost(reason)

    def _demand_fence(self, worker: KnownWorker) -> None:
        """If its process lives, it is to end what it has under this epoch."""
        self._order(worker, fence=worker.epoch)

    def drain(self, name: str) -> bool:
        """The worker opens nothing more, and ends when it has nothing open; False if there is none with this name."""
        worker = self._workers.get(name)
        if worker is None or worker.lost is not None:
            return False
        self._order(worker, drain=True)
        return True

    def _order(self, worker: KnownWorker, **order: object) -> None:
        if self._client is not None:
            work = self._client.publish(subjects.order(worker.name), json.dumps(order).encode())
            task = asyncio.ensure_future(_quietly(work))
            self._orders.add(task)
            task.add_done_callback(self._orders.discard)


async def _quietly(work: Any) -> None:
    try:
        await work
    except Exception as error:
        _log.debug("NATS: %s", error)
