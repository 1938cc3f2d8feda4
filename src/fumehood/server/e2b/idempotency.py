"""Answers by idempotency key, in memory: the sandboxes that they name live no longer than this process."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from fumehood.errors import UsageError
from fumehood.server.e2b.sandboxes import E2bSandbox

_KEPT_SECONDS = 600


class IdempotentOpenings:
    """For a while: who asks again gets the sandbox that is there, not a second one."""

    def __init__(self) -> None:
        self._answers: dict[tuple[str, str], tuple[float, str, asyncio.Task[E2bSandbox]]] = {}

    async def once(
        self, tenant: str, key: str, body: Mapping[str, Any], work: Callable[[], Coroutine[Any, Any, E2bSandbox]]
    ) -> E2bSandbox:
        if not key:
            return await work()
        self._forget_old()
        digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
        _, known, task = self._answers.get((tenant, key), (0.0, digest, None))
        if known != digest:
            raise UsageError("the Idempotency-Key was used with another body")
        if task is None:
            task = asyncio.ensure_future(work())
            self._answers[tenant, key] = time.monotonic(), digest, task
        try:
            return await asyncio.shield(task)
        except Exception:
            self._answers.pop((tenant, key), None)
            raise

    def _forget_old(self) -> None:
        oldest = time.monotonic() - _KEPT_SECONDS
        for key in [key for key, (made, _, _) in self._answers.items() if made < oldest]:
            del self._answers[key]
