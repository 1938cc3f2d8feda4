"""Copies of open sandboxes that their clients may open: each once, by the key that asked for it, and not for ever."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from fumehood.errors import UsageError
from fumehood.frozen import frozen
from fumehood.server.identity.principals import Principal
from fumehood.server.sandboxes.errors import NoSuchSandboxError
from fumehood.server.sandboxes.opening import Opening
from fumehood.server.sandboxes.placement import Fork

_MOST_OF_TENANT = 256


@frozen
class PreparedFork:
    copy: Fork
    opening: Opening
    principal: Principal
    until: float
    """On the monotonic clock."""


class PreparedForks:
    """A fork holds what it begins with in the store until it is opened, or released here."""

    def __init__(self) -> None:
        self._forks: dict[str, PreparedFork] = {}
        self._in_the_making: Counter[str] = Counter()

    @contextmanager
    def room_for(self, tenant: str, count: int) -> Iterator[None]:
        """While the copies are made, in which they count as if they were there."""
        self.release_old()
        kept = sum(fork.principal.tenant == tenant for fork in self._forks.values()) + self._in_the_making[tenant]
        if kept + count > _MOST_OF_TENANT:
            raise UsageError(f"at most {_MOST_OF_TENANT} copies of a tenant wait to be opened; open the {kept} first")
        made = max(0, count)
        self._in_the_making[tenant] += made
        try:
            yield
        finally:
            self._in_the_making[tenant] -= made
            if not self._in_the_making[tenant]:
                del self._in_the_making[tenant]

    def keep(self, copies: Sequence[Fork], opening: Opening, principal: Principal) -> list[str]:
        """Their names, which only this principal can use."""
        until = time.monotonic() + opening.times.idle
        names = [f"frk_{secrets.token_hex(16)}" for _ in copies]
        self._forks |= {
            name: PreparedFork(copy, opening, principal, until) for name, copy in zip(names, copies, strict=True)
        }
        return names

    def take(self, principal: Principal, name: str) -> PreparedFork:
        """One that is another's, that is too old, or was taken before, is the same as one that never was."""
        self.release_old()
        fork = self._forks.get(name)
        if fork is None or (fork.principal.tenant, fork.principal.name) != (principal.tenant, principal.name):
            raise NoSuchSandboxError
        del self._forks[name]
        return fork

    def put_back(self, name: str, fork: PreparedFork) -> None:
        """One that was taken and not opened."""
        self._forks[name] = fork

    def release_old(self) -> None:
        self._release({name for name, fork in self._forks.items() if fork.until < time.monotonic()})

    def release_all(self) -> None:
        self._release(set(self._forks))

    def _release(self, names: set[str]) -> None:
        for name in names:
            self._forks.pop(name).copy.release()
