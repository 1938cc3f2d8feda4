"""A worker: offers the sandboxes of its host to the servers of a cluster, until it is told to end.

It decides by itself whether it opens one. What it cannot be sure of it ends: the sandboxes of a server that is not heard
any more, and all of them when its own lease cannot be renewed.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fumehood import __version__
from fumehood.audit.log import AuditLog
from fumehood.audit.trail import Trail
from fumehood.cluster import subjects
from fumehood.cluster.authority import FOLDER
from fumehood.cluster.carrier import SubjectCarrier
from fumehood.cluster.claims import account_of, read_user_token
from fumehood.cluster.connection import close, connect, subscribe
from fumehood.cluster.credentials import Credentials
from fumehood.cluster.hosted_sandbox import HostedSandbox
from fumehood.cluster.lease import LEASE_SECONDS, RENEW_SECONDS, TakenOverError, WorkerLease, now
from fumehood.cluster.opening import unpack_opening
from fumehood.cluster.run_meter import WorkerMeter
from fumehood.errors import FumehoodError, HostUnavailableError, LostError, UsageError
from fumehood.frozen import frozen
from fumehood.guest.contract import frames
from fumehood.guest.contract.frames import FrameError, Header
from fumehood.remote.carrier import CarrierLostError
from fumehood.remote.failures import pack_failure
from fumehood.remote.greeting import receive_greeting

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg

_FIRST_MESSAGE_SECONDS = 10
_MOST_WARM = 64
_log = logging.getLogger(__name__)


@frozen
class WorkerOffer:
    """What a worker offers: how many sandboxes at once, on which backends; `labels` are for operators to read."""

    slots: int
    backends: tuple[str, ...]
    labels: Mapping[str, str]


class Worker:
    def __init__(self, credentials: Credentials, folder: Path, offer: WorkerOffer) -> None:
        self._credentials, self._folder, self._offer = credentials, folder, offer
        self._tenants = read_user_token(credentials.user, account_of(credentials.user)).tenants
        self._client: Client | None = None
        self._lease: WorkerLease | None = None
        self._hosted: dict[str, HostedSandbox] = {}
        self._opening = 0
        self._carriers: dict[str, SubjectCarrier] = {}
        """By the subject that messages come on."""
        self._heard: dict[tuple[str, str], float] = {}
        """Processes of servers -> when each was last heard."""
        self._meters: dict[str, WorkerMeter] = {}
        self._warm: OrderedDict[str, None] = OrderedDict()
        """Digests of policies that were opened lately: what they need is likely to be ready."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_draining = False
        self._one_less = asyncio.Event()
        self._announce = asyncio.Event()
        self._stop = asyncio.Event()

    @property
    def name(self) -> str:
        return self._credentials.name

    def stop(self) -> None:
        """It opens nothing more, and waits for the end of what is open for a time."""
        self._stop.set()

    async def run(self, drain_seconds: float, ready: Callable[[], object] = lambda: None) -> None:
        """Until `stop`, or until a server says so. `ready` is called when servers can use it."""
        FOLDER.make(self._folder)
        client = self._client = await connect(self._credentials, disconnected=self._lose_carriers)
        lease = self._lease = WorkerLease(client, self.name)
        keeping: asyncio.Task[None] | None = None
        try:
            await lease.begin(self._entry())
            await subscribe(client, subjects.up(self.name, "*", "*", "*"), self._take)
            await subscribe(client, subjects.beat("*"), self._hear)
            await subscribe(client, subjects.order(self.name), self._obey)
            await client.flush()
            keeping = asyncio.ensure_future(self._keep(lease))
            ready()
            stopping = asyncio.ensure_future(self._drain(drain_seconds))
            await asyncio.wait([keeping, stopping], return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            await asyncio.gather(stopping, return_exceptions=True)
            if keeping.done():
                keeping.result()
        finally:
            if keeping is not None:
                keeping.cancel()
                await asyncio.gather(keeping, return_exceptions=True)
            await asyncio.shield(self._end(client))

    async def _drain(self, seconds: float) -> None:
        await self._stop.wait()
        self._is_draining = True
        self._announce.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._hosted or self._opening:
                    self._one_less.clear()
                    await self._one_less.wait()

    async def _end(self, client: Client) -> None:
        self._is_draining = True
        await self._close_all("the worker ends")
        await self._report_usage()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await close(client)

    # Its lease.

    def _entry(self) -> dict[str, Any]:
        client = self._client
        assert client is not None
        return {
            "version": __version__,
            "token": self._credentials.user,
            "client": client.client_id,
            "slots": self._offer.slots,
            "free": max(0, self._offer.slots - len(self._hosted) - self._opening),
            "backends": list(self._offer.backends),
            "labels": dict(self._offer.labels),
            "warm": list(self._warm),
            "draining": self._is_draining,
        }

    async def _keep(self, lease: WorkerLease) -> None:
        """Renews the lease; ends everything, and begins a new epoch, when that was not possible in time."""
        while True:
            await self._pause(lease)
            try:
                if lease.seconds_left <= 0:
                    await self._fence(lease, "its lease could not be renewed")
                else:
                    await lease.renew(self._entry())
            except TakenOverError:
                await self._close_all("another process has taken its place")
                raise
            except LostError as error:
                _log.warning("%s", error)
                if lease.seconds_left <= 0:
                    await self._close_all("its lease could not be renewed")
            await self._close_of_lost_servers()
            await self._report_usage()

    async def _pause(self, lease: WorkerLease) -> None:
        self._announce.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(RENEW_SECONDS):
                await self._announce.wait()

    async def _fence(self, lease: WorkerLease, reason: str) -> None:
        """Nothing of the old epoch is left when the new one begins."""
        await self._close_all(reason)
        await lease.begin(self._entry())

    async def _obey(self, message: Msg) -> None:
        """Of an epoch that a server holds for lost, what is here ends, too."""
        lease, order = self._lease, json.loads(message.data)
        if lease is not None and order.get("fence") == lease.epoch:
            self._begin(self._fence(lease, "a server holds it for lost"))
        if order.get("drain") is True:
            self._stop.set()

    async def _close_all(self, reason: str) -> None:
        if self._hosted:
            _log.warning("%d sandboxes are closed: %s", len(self._hosted), reason)
        hosted = list(self._hosted.values())
        await asyncio.gather(*(each.close(reason) for each in hosted), return_exceptions=True)

    async def _hear(self, message: Msg) -> None:
        """A server says that a process of its lives."""
        self._heard[message.subject.rpartition(".")[2], message.data.decode("ascii", "replace")] = now()

    async def _close_of_lost_servers(self) -> None:
        lost = {owner for owner, when in self._heard.items() if now() - when > LEASE_SECONDS}
        for owner in lost:
            del self._heard[owner]
        theirs = [each for each in self._hosted.values() if each.owner in lost or each.is_abandoned(LEASE_SECONDS)]
        await asyncio.gather(*(each.close("its server is gone") for each in theirs), return_exceptions=True)

    async def _report_usage(self) -> None:
        """To a server that it has heard lately; kept for the next time if there is none."""
        owner = max(self._heard, key=lambda each: self._heard[each], default=None)
        if self._client is None or owner is None:
            return
        for tenant, meter in self._meters.items():
            if used := meter.take_used():
                report = json.dumps({"tenant": tenant, **used}).encode()
                with suppress(Exception):
                    await self._client.publish(subjects.usage(owner[0], self.name, owner[1]), report)

    # Messages of servers.

    async def _lose_carriers(self) -> None:
        for carrier in list(self._carriers.values()):
            carrier.lose("the connection to NATS is lost")

    async def _take(self, message: Msg) -> None:
        carrier = self._carriers.get(message.subject)
        if carrier is None:
            carrier = self._add_carrier(message.subject)
            self._begin(self._serve(message.subject, carrier))
        carrier.deliver(message.data)

    def _add_carrier(self, subject: str) -> SubjectCarrier:
        assert self._client is not None
        _, _, _, server, instance, channel = subject.split(".")
        down = subjects.down(server, self.name, instance, channel)
        carrier = SubjectCarrier(self._client, down, lambda: self._carriers.pop(subject, None))
        self._carriers[subject] = carrier
        return carrier

    def _begin(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, subject: str, carrier: SubjectCarrier) -> None:
        _, _, _, server, instance, _ = subject.split(".")
        try:
            async with asyncio.timeout(_FIRST_MESSAGE_SECONDS):
                greeting = await receive_greeting(carrier)
            if greeting.get("do") == "attach":
                hosted, received = self._attach((server, instance), greeting)
                await carrier.send(frames.encode({"received": hosted.received}))
            else:
                hosted, received = await self._open((server, instance), greeting), 0
                await self._send_opened(hosted, carrier)
            await hosted.serve(carrier, received)
        except (FumehoodError, FrameError) as error:
            failure = error if isinstance(error, FumehoodError) else UsageError(str(error))
            await _send(carrier, failed=pack_failure(failure))
        except (CarrierLostError, TimeoutError):
            pass  # the server comes back with another one, or is gone
        except Exception as error:
            _log.exception("a call of a server failed")
            await _send(carrier, failed=pack_failure(error))
        finally:
            await carrier.close()

    async def _open(self, owner: tuple[str, str], header: Header) -> HostedSandbox:
        self._check(header)
        self._heard[owner] = now()
        self._opening += 1
        try:
            name = str(header["tenant"]["name"])
            meter = self._meters.setdefault(name, WorkerMeter())
            opening = unpack_opening(header, self._folder_of(name), meter)
            meter.set_limits(header["limits"])
            trail = Trail(AuditLog.at(self._folder_of(name) / "audit"), opening.principal, name)
            hosted = HostedSandbox(opening, owner, trail, self._forget)
            await hosted.open()
        finally:
            self._opening -= 1
            self._one_less.set()
        self._hosted[hosted.id] = hosted
        self._remember_warm(opening.policy.digest)
        if self._lease is not None and self._lease.epoch != opening.epoch:
            await hosted.close("the worker was fenced meanwhile")
            raise HostUnavailableError(f"worker {self.name} was fenced meanwhile")
        return hosted

    def _check(self, header: Header) -> None:
        """The worker decides, whatever the server believed of it."""
        tenant: Any = header.get("tenant")
        name = str(tenant.get("name")) if isinstance(tenant, dict) else ""
        if self._lease is None or header.get("epoch") != self._lease.epoch or self._lease.seconds_left <= 0:
            raise HostUnavailableError(f"worker {self.name} has another epoch by now")
        if self._is_draining:
            raise HostUnavailableError(f"worker {self.name} is about to end")
        if self._tenants and name not in self._tenants:
            raise HostUnavailableError(f"worker {self.name} is not for tenant {name}")
        if len(self._hosted) + self._opening >= self._offer.slots:
            raise HostUnavailableError(f"worker {self.name} is full: {self._offer.slots} sandboxes")

    def _folder_of(self, tenant: str) -> Path:
        subjects.check_member_name(tenant)
        folder = self._folder / "tenants" / tenant
        FOLDER.make(folder.parent)
        FOLDER.make(folder)
        return folder

    def _remember_warm(self, digest: str) -> None:
        self._warm[digest] = None
        self._warm.move_to_end(digest)
        if len(self._warm) > _MOST_WARM:
            self._warm.popitem(last=False)

    async def _send_opened(self, hosted: HostedSandbox, carrier: SubjectCarrier) -> None:
        try:
            await carrier.send(frames.encode({"opened": hosted.answer(LEASE_SECONDS)}))
        except CarrierLostError:
            await hosted.close("the server has gone while it was opened")
            raise

    def _attach(self, owner: tuple[str, str], header: Header) -> tuple[HostedSandbox, int]:
        hosted, received = self._hosted.get(str(header.get("sandbox"))), header.get("received")
        if hosted is None or not hosted.is_for(owner, str(header.get("token"))):
            raise LostError(f"worker {self.name} does not have the sandbox any more")
        if type(received) is not int:
            raise UsageError("a server that comes back says what it has received")
        return hosted, received

    def _forget(self, hosted: HostedSandbox) -> None:
        self._hosted.pop(hosted.id, None)
        self._one_less.set()


async def _send(carrier: SubjectCarrier, **answer: Any) -> None:
    with suppress(CarrierLostError):
        await carrier.send(frames.encode(answer))
