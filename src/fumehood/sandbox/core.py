"""What the parts of one sandbox share: the policy in force, its tenant, its audit, and what is open of it."""

from __future__ import annotations

import secrets
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from functools import partial
from typing import TYPE_CHECKING

from fumehood.audit.trail import Trail
from fumehood.backends.interface import BackendSandbox, Conversation, RunRequest
from fumehood.backends.selection import select_backend
from fumehood.errors import UsageError
from fumehood.policy import Policy
from fumehood.sandbox.admission import check_change
from fumehood.sandbox.audit import AuditChoice, SandboxAudit
from fumehood.sandbox.egress import RunNetwork, SandboxNetwork, wait_for_gateway
from fumehood.tenant import Tenant

if TYPE_CHECKING:
    from fumehood.egress import SandboxEgress


class SandboxCore:
    """The state of one sandbox, which its parts are given instead of each other."""

    def __init__(self, policy: Policy, tenant: Tenant, audit: AuditChoice) -> None:
        self.policy, self.tenant = policy, tenant
        self.audit = SandboxAudit(audit, tenant)
        self.stack = AsyncExitStack()
        """Closes what is open."""
        self.open_sessions = 0
        """How many have a process, which may write to the workspace at any moment."""
        self._backend: BackendSandbox | None = None
        self._egress: SandboxEgress | None = None
        self._network: SandboxNetwork | None = None

    def opened(self, backend: BackendSandbox, egress: SandboxEgress | None, stack: AsyncExitStack) -> None:
        self._backend, self._egress, self.stack = backend, egress, stack
        self._network = SandboxNetwork(egress, is_shared=backend.shares_listeners) if egress else None

    def closing(self) -> BackendSandbox | None:
        """The backend's sandbox, which no part can use from now on."""
        backend, self._backend = self._backend, None
        self._egress = self._network = None
        return backend

    @property
    def trail(self) -> Trail:
        return self.audit.trail

    @property
    def is_open(self) -> bool:
        return self._backend is not None

    @property
    def backend(self) -> BackendSandbox:
        if self._backend is None:
            raise UsageError("the sandbox is not open; use it inside `async with AsyncSandbox(policy) as box:`")
        return self._backend

    def check_open(self) -> None:
        """UsageError if it is not."""
        _ = self.backend

    @property
    def image_digest(self) -> str | None:
        return self._backend.image_digest if self._backend else None

    @property
    def has_network(self) -> bool:
        return self._egress is not None

    @property
    def gateway_ports(self) -> tuple[int, ...]:
        """Those at which the gateway listens inside."""
        return self._egress.ports if self._egress else ()

    def converse(self) -> AbstractAsyncContextManager[Conversation]:
        """A conversation with the file service inside."""
        return self.backend.files()

    def run_network(self, name: str, request: RunRequest | None = None) -> AbstractAsyncContextManager[RunNetwork]:
        if self._network is None or (request and request.is_offline):
            return nullcontext(RunNetwork())
        return self._network.open_run(name)

    async def change_gateway_rules(self, policy: Policy) -> None:
        """Checks that this policy may take the place of the one in force; the gateway enforces its rules at once."""
        self.tenant.check(policy)
        check_change(self.policy, policy)
        if self._egress is not None:
            select_backend(policy).check(policy, self.tenant)
            self.audit.redact_secrets_of(policy)
            await wait_for_gateway(partial(self._egress.change, policy))

    async def put_in_force(self, policy: Policy) -> None:
        """After `change_gateway_rules`, and once what this policy no longer allows is closed."""
        if self._egress is not None:
            self.backend.change_ports(self.gateway_ports)
        self.policy = policy
        await self.audit.policy_changed(policy)


def identifier(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(8)}"
