"""What a worker answers to servers: openings, and the calls of sandboxes that it has open for them."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fumehood.audit.log import AuditLog
from fumehood.audit.trail import Trail
from fumehood.cluster import subjects
from fumehood.cluster.carrier import SubjectCarrier
from fumehood.cluster.folder import FOLDER
from fumehood.cluster.hosted_sandbox import HostedSandbox
from fumehood.cluster.lease import LeaseTimes, now
from fumehood.cluster.opening import unpack_opening
from fumehood.cluster.tenant_meter import WorkerMeter
from fumehood.errors import FumehoodError, HostUnavailableError, LostError, UsageError
from fumehood.frozen import frozen
from fumehood.guest.contract import frames
from fumehood.guest.contract.frames import FrameError, Header
from fumehood.remote.carrier import CarrierLostError
from fumehood.remote.connection import PROTOCOL
from fumehood.remote.failures import pack_failure
from fumehood.remote.greeting import receive_greeting

if TYPE_CHECKING:
    from nats.aio.msg import Msg

    from fumehood.cluster.nats_client import NatsClient

Owner = tuple[str, str]
"""A server, and one process of it."""
_FIRST_MESSAGE_SECONDS = 10
_MOST_WARM = 64
_MOST_OWNERS = 16
_log = logging.getLogger(__name__)


@frozen
class WorkerOffer:
    """What a worker offers: how many sandboxes at once, on which backends, to whom; `labels` are for operators."""

    slots: int
    backends: tuple[str, ...]
    labels: Mapping[str, str]
    version: str
    """Of Fumehood, for operators."""
    tenants: frozenset[str] = frozenset()
    """Empty for all."""


class WorkerService:
    """`epoch` gives the epoch in which sandboxes may be opened now, or None while there is none."""

    sandbox_type = HostedSandbox

    def __init__(
        self, name: str, folder: Path, offer: WorkerOffer, epoch: Callable[[], int | None], times: LeaseTimes
    ) -> None:
        self._name, self._folder, self._offer = name, folder, offer
        self._epoch, self._times = epoch, times
        self.client: NatsClient | None = None
        self._hosted: dict[str, HostedSandbox] = {}
        self._opening: set[str] = set()
        """Ids of those that are not open yet."""
        self._carriers: dict[str, SubjectCarrier] = {}
        """By the subject that messages come on."""
        self._meters: dict[str, WorkerMeter] = {}
        self._folders: dict[str, Path] = {}
        self._logs: dict[str, AuditLog] = {}
        self._owners: dict[str, list[Owner]] = {}
        """By tenant, the servers that have opened sandboxes for it; the last one comes last."""
        self._alive: dict[Owner, float] = {}
        """When each process of a server was last heard."""
        self._warm: OrderedDict[str, None] = OrderedDict()
        """Digests of policies that were opened lately: what they need is likely to be ready."""
        self._tasks: set[asyncio.Task[None]] = set()
        self.is_draining = False
        self._one_less = asyncio.Event()

    def describe(self) -> dict[str, Any]:
        return {
            "version": self._offer.version,
            "slots": self._offer.slots,
            "free": max(0, self._offer.slots - len(self._hosted) - len(self._opening)),
            "backends": list(self._offer.backends),
            "labels": dict(self._offer.labels),
            "warm": list(self._warm),
            "draining": self.is_draining,
        }

    def owners_of(self, report: Mapping[str, Any]) -> list[Owner]:
        """Who gets it: a checkpoint, all servers of the tenant, as witnesses; usage, one, to be counted once."""
        owners = self._owners.get(str(report["tenant"]), [])
        return owners if "checkpoint" in report else owners[-1:]

    def take_used(self) -> list[dict[str, Any]]:
        """What runs of each tenant have used since the last time."""
        used = {tenant: meter.take_used() for tenant, meter in self._meters.items()}
        return [{"tenant": tenant, "used": amounts} for tenant, amounts in used.items() if amounts]

    def new_checkpoints(self) -> list[dict[str, Any]]:
        """Signs the audit logs that have new records. Waits for the disk."""
        changed = [(tenant, log) for tenant, log in self._logs.items() if _is_unsigned(log)]
        return [{"tenant": tenant, "checkpoint": asdict(log.checkpoint())} for tenant, log in changed]

    async def wait_until_empty(self) -> None:
        while self._hosted or self._opening:
            self._one_less.clear()
            await self._one_less.wait()

    async def close_all(self, reason: str) -> None:
        if self._hosted:
            _log.warning("%d sandboxes are closed: %s", len(self._hosted), reason)
        await self._close(list(self._hosted.values()), reason)

    def note_alive(self, owner: Owner) -> None:
        self._alive[owner] = now()

    async def close_abandoned(self) -> None:
        """Those of servers that are gone, and those that no server has had a connection to for long."""
        lease = self._times.lease
        self._alive = {owner: when for owner, when in self._alive.items() if now() - when <= lease}
        theirs = [each for each in self._hosted.values() if each.owner not in self._alive or each.is_abandoned(lease)]
        await self._close(theirs, "its server is gone")

    async def _close(self, hosted: list[HostedSandbox], reason: str) -> None:
        await asyncio.gather(*(each.close(reason) for each in hosted), return_exceptions=True)

    async def end(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def lose_carriers(self) -> None:
        for carrier in list(self._carriers.values()):
            carrier.lose("the connection to NATS is lost")

    def take(self, message: Msg) -> None:
        """A message of a server, for a carrier that is in use or for a new one."""
        carrier = self._carriers.get(message.subject)
        if carrier is None and message.data:
            carrier = self._add_carrier(message.subject)
            self.begin(self._serve(message.subject, carrier))
        if carrier is not None:
            carrier.deliver(message.data)

    def _add_carrier(self, subject: str) -> SubjectCarrier:
        assert self.client is not None
        *_, server, instance, channel = subject.split(".")
        down = subjects.down(server, self._name, instance, channel)
        carrier = SubjectCarrier(self.client, down, lambda: self._carriers.pop(subject, None))
        self._carriers[subject] = carrier
        return carrier

    async def _serve(self, subject: str, carrier: SubjectCarrier) -> None:
        *_, server, instance, _ = subject.split(".")
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

    async def _open(self, owner: Owner, header: Header) -> HostedSandbox:
        self._check(header)
        identifier = str(header.get("sandbox"))
        if identifier in self._hosted or identifier in self._opening:
            # In its place another server's would go on unseen, with nobody to end it.
            raise UsageError(f"worker {self._name} has a sandbox of this id already")
        self._opening.add(identifier)
        try:
            hosted = self._make(owner, header)
            await hosted.open()
        finally:
            self._opening.discard(identifier)
            self._one_less.set()
        self._hosted[hosted.id] = hosted
        self._remember_warm(hosted.box.policy.digest)
        if header["epoch"] != self._epoch():
            await hosted.close("the worker was fenced meanwhile")
            raise HostUnavailableError(f"worker {self._name} was fenced meanwhile")
        return hosted

    def _check(self, header: Header) -> None:
        """The worker decides, whatever the server believed of it."""
        if header.get("protocol") != PROTOCOL:
            raise HostUnavailableError(
                f"worker {self._name} speaks protocol {PROTOCOL}, not {header.get('protocol')!r}"
            )
        tenant: Any = header.get("tenant")
        name = str(tenant.get("name")) if isinstance(tenant, dict) else ""  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType] - text in any case
        epoch = self._epoch()
        if epoch is None or header.get("epoch") != epoch:
            raise HostUnavailableError(f"worker {self._name} has another epoch by now")
        if self.is_draining:
            raise HostUnavailableError(f"worker {self._name} is about to end")
        if self._offer.tenants and name not in self._offer.tenants:
            raise HostUnavailableError(f"worker {self._name} is not for tenant {name}")
        if len(self._hosted) + len(self._opening) >= self._offer.slots:
            raise HostUnavailableError(f"worker {self._name} is full: {self._offer.slots} sandboxes")

    def _make(self, owner: Owner, header: Header) -> HostedSandbox:
        name = str(header["tenant"]["name"])
        self.note_alive(owner)  # it may end before it says so again
        folder, meter = self._folder_of(name), self._meters.setdefault(name, WorkerMeter(self._is_fenced))
        opening = unpack_opening(header, folder, meter)
        meter.set_limits(opening.limits)
        log = self._logs[name] = AuditLog.at(folder / "audit")
        self._owners[name] = [*(each for each in self._owners.get(name, ()) if each != owner), owner][-_MOST_OWNERS:]
        return self.sandbox_type(opening, owner, Trail(log, opening.principal, name), self._forget)

    def _is_fenced(self) -> bool:
        return self._epoch() is None

    def _folder_of(self, tenant: str) -> Path:
        if (known := self._folders.get(tenant)) is not None and known.is_dir():
            return known
        subjects.check_member_name(tenant)
        folder = self._folders[tenant] = self._folder / "tenants" / tenant
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
            await carrier.send(frames.encode({"opened": hosted.answer(self._times.lease)}))
        except CarrierLostError:
            await hosted.close("the server has gone while it was opened")
            raise

    def _attach(self, owner: Owner, header: Header) -> tuple[HostedSandbox, int]:
        hosted, received = self._hosted.get(str(header.get("sandbox"))), header.get("received")
        if hosted is None or not hosted.is_for(owner, str(header.get("token"))):
            raise LostError(f"worker {self._name} does not have the sandbox any more")
        if type(received) is not int:
            raise UsageError("a server that comes back says what it has received")
        return hosted, received

    def _forget(self, hosted: HostedSandbox) -> None:
        self._hosted.pop(hosted.id, None)
        self._one_less.set()


def _is_unsigned(log: AuditLog) -> bool:
    head = log.head()
    return head.checkpoint_seq != head.seq


async def _send(carrier: SubjectCarrier, **answer: Any) -> None:
    with suppress(CarrierLostError):
        await carrier.send(frames.encode(answer))
