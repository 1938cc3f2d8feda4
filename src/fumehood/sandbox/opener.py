"""Whoever opens sandboxes in this process: for its own user, or for a tenant of a server."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Unpack

from fumehood.policy import AnyPolicy
from fumehood.sandbox.async_sandbox import AsyncSandbox, open_named
from fumehood.sandbox.audit import AuditChoice
from fumehood.sandbox.interface import AnySandbox, Opener, SandboxOptions
from fumehood.tenant import LOCAL, Tenant


class LocalOpener:
    """`LocalOpener(tenant).sandbox(policy)`. All its sandboxes are recorded in `audit`, else in the tenant's log."""

    def __init__(self, tenant: Tenant = LOCAL, audit: AuditChoice = None) -> None:
        self._tenant, self._audit = tenant, audit

    def sandbox(self, policy: AnyPolicy | None = None, **options: Unpack[SandboxOptions]) -> AsyncSandbox:
        return AsyncSandbox(policy, audit=self._audit, tenant=self._tenant, **options)

    def open(
        self,
        name: str,
        policy: AnyPolicy | None = None,
        *,
        create: bool = False,
        wait: bool = False,
        **options: Unpack[SandboxOptions],
    ) -> AsyncSandbox:
        """A named sandbox of the tenant's; see `AsyncSandbox.open`."""
        make = partial(self.sandbox, **options)
        return open_named(make, self._tenant, name, policy, create=create, wait=wait)


HERE = LocalOpener()

if TYPE_CHECKING:
    # That both are what the protocols ask for is proved by the type checker.
    _opener: Opener = LocalOpener()
    _sandbox: AnySandbox = AsyncSandbox()
