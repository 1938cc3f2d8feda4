"""What the protocol needs to remember of the sandboxes that were opened through it."""

from __future__ import annotations

import hashlib
import hmac
import time
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

from fumehood.audit.trail import Trail
from fumehood.errors import UsageError
from fumehood.frozen import frozen
from fumehood.sandbox.async_sandbox import AsyncSandbox
from fumehood.server.e2b.contexts import Contexts
from fumehood.server.e2b.ports import Ports
from fumehood.server.e2b.processes import Processes
from fumehood.server.e2b.templates import Template
from fumehood.server.e2b.usage import SandboxUsage
from fumehood.server.e2b.watchers import Watchers
from fumehood.server.identity.principals import Principal
from fumehood.server.sandboxes.open_sandbox import OpenSandbox
from fumehood.server.sandboxes.opening import Opening, Times
from fumehood.server.sandboxes.registry import SandboxRegistry

Trails = Callable[[Principal], Trail]
"""The audit trail of a principal's tenant."""

_NEVER = float("inf")


async def _unlimited(tenant: str) -> None:
    pass


@frozen
class Terms:
    """What holds at this server for all who use the protocol."""

    longest_seconds: float = 86400
    domain: str | None = None
    """Of the sandboxes' own host names, `<port>-<id>.<domain>`; without it, that of this machine."""
    take_request: Callable[[str], Awaitable[None]] = _unlimited
    """Counts a control call of the tenant; QuotaExceededError if there were too many lately."""
    one_more: Callable[[str], AbstractContextManager[object]] = nullcontext
    """The block is one request of the tenant; TooManyConnectionsError if it has too many under way."""


class E2bSandbox:
    """An open sandbox with its processes, contexts, watchers and ports."""

    def __init__(
        self,
        opened: OpenSandbox,
        template: Template,
        metadata: Mapping[str, str],
        variables: Mapping[str, str],
    ) -> None:
        self.opened, self.box, self.template = opened, opened.box, template
        self.started, self.metadata = time.time(), metadata
        self.usage = SandboxUsage(opened.box)
        self.processes = Processes(opened.box, variables, self.usage)
        self.contexts = Contexts(opened.box, variables, self.usage)
        self.watchers = Watchers(opened.box)
        self.ports = Ports(opened.box)

    @property
    def id(self) -> str:
        return self.opened.id

    @contextmanager
    def in_use(self) -> Iterator[None]:
        self.opened.begin_use()
        try:
            yield
        finally:
            self.opened.end_use()

    def has_signed(self, signature: str, path: str, operation: str, user: str, expires: str) -> bool:
        """Whether the holder of a token has made this address, for this path and operation, and it is still good."""
        in_time = not expires or (expires.isascii() and expires.isdigit() and time.time() < int(expires[:12]))
        rest, given = [expires] if expires else [], signature.encode()
        made = [_signature([path, operation, user, token, *rest]) for token in self.opened.tokens.all()]
        return any(hmac.compare_digest(each, given) for each in made) and in_time


def _signature(words: list[str]) -> bytes:
    digest = hashlib.sha256(":".join(words).encode()).digest()
    return b"v1_" + b64encode(digest).rstrip(b"=")


class E2bSandboxes:
    def __init__(self, registry: SandboxRegistry, trails: Trails, terms: Terms) -> None:
        self._registry, self._trails, self._terms = registry, trails, terms
        self._by_id: dict[str, E2bSandbox] = {}

    async def open(
        self,
        principal: Principal,
        template: Template,
        seconds: int,
        metadata: Mapping[str, str],
        variables: Mapping[str, str],
    ) -> E2bSandbox:
        times = Times(lifetime=self.checked_lifetime(seconds), idle=_NEVER, linger=_NEVER)
        opening = Opening(template.name, template.policy, times, metadata, keep_tmp=True)
        opened, _ = await self._registry.open(principal, opening, self._trails(principal))
        if isinstance(opened.box, AsyncSandbox):
            opened.box.collects_artifacts = False
        self._forget_closed()
        sandbox = self._by_id[opened.id] = E2bSandbox(opened, template, metadata, variables)
        return sandbox

    async def find(self, tenant: str, identifier: str) -> E2bSandbox:
        """For control calls. NoSuchSandboxError if it is not the tenant's, EndedError if it was."""
        opened = await self._registry.find(tenant, identifier)
        found = self._by_id.get(opened.id)
        if found is None:
            raise UsageError("the sandbox was opened by another client than E2B's, and is used by that one")
        return found

    def find_by_token(self, identifier: str, token: str) -> E2bSandbox | None:
        found = self.find_open(identifier)
        return found if found is not None and found.opened.tokens.holder(token) else None

    def find_open(self, identifier: str) -> E2bSandbox | None:
        """Without a look at any token: that is for the caller."""
        found = self._by_id.get(identifier)
        return found if found is not None and found.box.is_open else None

    def all_open(self) -> list[E2bSandbox]:
        return [each for each in self._by_id.values() if each.box.is_open]

    async def close(self, tenant: str, identifier: str) -> None:
        await self._registry.find(tenant, identifier)
        await self._registry.close(tenant, identifier)
        self._by_id.pop(identifier, None)

    def _forget_closed(self) -> None:
        for identifier in [key for key, each in self._by_id.items() if not each.box.is_open]:
            del self._by_id[identifier]

    def checked_lifetime(self, seconds: int) -> float:
        if not 0 <= seconds <= self._terms.longest_seconds:
            raise UsageError(f"timeout {seconds} must be from 0 to {self._terms.longest_seconds:g} seconds")
        return float(seconds)
