"""One sandbox that a worker has open for a server, and the carrier in use."""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import Callable, Mapping

from fumehood.audit.trail import Trail
from fumehood.cluster.lease import now
from fumehood.cluster.opening import WorkerOpening
from fumehood.cluster.workspace_calls import HANDLERS
from fumehood.errors import LostError, UsageError
from fumehood.guest.contract.frames import Header
from fumehood.remote.carrier import MessageCarrier
from fumehood.remote.current_carrier import CurrentCarrier
from fumehood.remote.policies import pack_policy, unpack_policy
from fumehood.remote.service import SandboxService
from fumehood.sandbox.async_sandbox import AsyncSandbox


class EndedByWorkerError(Exception):
    """The worker closes the sandbox: it is fenced or ends, or the server is gone."""


class HostedSandbox:
    """`server` and `instance` name the process that it is for. `forget` is called once, when nothing of it is left."""

    def __init__(
        self,
        opening: WorkerOpening,
        owner: tuple[str, str],
        trail: Trail,
        forget: Callable[[HostedSandbox], object],
    ) -> None:
        self.id, self.tenant, self.owner = opening.sandbox, opening.tenant.name, owner
        self._forget, self._token = forget, secrets.token_urlsafe(24)
        self.box = AsyncSandbox(
            opening.policy,
            session=opening.session,
            keep_tmp=opening.keep_tmp,
            learn=opening.learn,
            gated=opening.gated,
            audit=trail,
            tenant=opening.tenant,
        )
        self.service = SandboxService(self.box, self, HANDLERS)
        link = self.service.conversations.link
        self._carrier = CurrentCarrier(link, now, check_open=self._check_open, close=self.close, lost_at=now())
        self._closing: asyncio.Task[None] | None = None

    async def open(self) -> None:
        await self.box.__aenter__()

    def answer(self, linger: float) -> Header:
        return self._answer(linger, self.box.enforcement)

    def _answer(self, linger: float, enforcement: Mapping[str, str]) -> Header:
        return {
            "sandbox": self.id,
            "token": self._token,
            "linger": linger,
            "policy": pack_policy(self.box.policy),
            "enforcement": dict(enforcement),
        }

    def is_for(self, owner: tuple[str, str], token: str) -> bool:
        return owner == self.owner and hmac.compare_digest(self._token.encode(), token.encode())

    @property
    def received(self) -> int:
        return self.service.conversations.link.received

    async def serve(self, carrier: MessageCarrier, received_by_server: int) -> None:
        """Until the carrier is lost, or another one takes its place."""
        await self._carrier.serve(carrier, received_by_server)

    def _check_open(self) -> None:
        if self._closing is not None:
            raise LostError("the worker has closed the sandbox; open another one")

    def is_abandoned(self, seconds: float) -> bool:
        """Whether it has been without a carrier for so long."""
        lost_at = self._carrier.lost_at
        return lost_at is not None and now() - lost_at > seconds

    async def admit_call(self, call: str) -> None:
        """The server has counted and judged it."""

    async def close_for_client(self, is_failing: bool) -> None:
        await self._leave(EndedByWorkerError("failed") if is_failing else None)

    async def fork(self, count: int) -> list[str]:
        raise UsageError("a worker keeps no copies; its server forks sandboxes")

    async def change_policy(self, wanted: object) -> None:
        await self.box.change_policy(unpack_policy(wanted))

    async def close(self, reason: str) -> None:
        """Whatever happens in it; returns when nothing of it is left."""
        await self.service.close()
        await self._carrier.hang_up()
        await self._leave(EndedByWorkerError(reason))

    async def _leave(self, error: BaseException | None) -> None:
        """Once, and whole, also when its caller is cancelled."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._leave_once(error))
        await asyncio.shield(self._closing)

    async def _leave_once(self, error: BaseException | None) -> None:
        try:
            await self.box.__aexit__(type(error) if error else None, error, None)
        finally:
            self._forget(self)
