"""Tokens of one open sandbox, one for each key that asked: a key that is out of force takes its own along."""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import Collection, Iterator
from contextlib import contextmanager


class AccessTokens:
    """`principal` has opened the sandbox, and `token` is its own."""

    def __init__(self, principal: str, token: str) -> None:
        self._tokens = {principal: token}
        self._requests: dict[asyncio.Task[object], str] = {}
        """Those under way that came with a token, and whose it is."""

    def of(self, principal: str) -> str:
        return self._tokens.setdefault(principal, secrets.token_urlsafe(32))

    def holder(self, token: str) -> str | None:
        """Whose it is. All are compared, so that time tells nothing."""
        given, found = token.encode(), None
        for principal, each in self._tokens.items():
            if hmac.compare_digest(each.encode(), given):
                found = principal
        return found

    def all(self) -> Collection[str]:
        return self._tokens.values()

    @contextmanager
    def used_by(self, holder: str) -> Iterator[None]:
        """For the block, which is one request; it is cancelled when the holder's token is withdrawn."""
        task = asyncio.current_task()
        assert task is not None
        self._requests[task] = holder
        try:
            yield
        finally:
            del self._requests[task]

    def withdraw(self, principals: Collection[str]) -> None:
        for principal in [each for each in self._tokens if each in principals]:
            del self._tokens[principal]
        for task in [task for task, holder in self._requests.items() if holder in principals]:
            task.cancel()
