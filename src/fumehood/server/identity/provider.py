"""The signing keys of an identity provider: discovered, cached, and fetched again as seldom as that can be.

A token whose key is not known leads to a look at the provider, at most one every half minute whatever is sent. Keys
that are known go on while the provider cannot be reached, for a day; after that none is.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

from fumehood.server.http_call import CallFailedError, HttpCall, check_url, tls_context
from fumehood.server.identity.issuers import IssuerSettings

DISCOVERY = "/.well-known/openid-configuration"
PAUSE_SECONDS = 30.0
_FRESH_SECONDS = 600.0
_KEPT_SECONDS = 86400.0
_CALL_SECONDS = 5.0
_MOST_KEYS = 64
_log = logging.getLogger(__name__)
Jwk = Mapping[str, Any]


class IdentityProvider:
    """Used in one event loop; calls are made in a thread of its own, so that a provider that hangs holds up no other
    work.
    """

    def __init__(self, settings: IssuerSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._issuer, self._clock = settings.issuer, clock
        self._context = tls_context(settings.ca) if settings.issuer.startswith("https:") else None
        self._threads = ThreadPoolExecutor(1, "fumehood-identity")
        self._keys: dict[str, Jwk] = {}
        self._fetched: float | None = None
        self._next_fetch = 0.0
        self._fetch: asyncio.Task[None] | None = None
        self._call: HttpCall | None = None

    async def find_key(self, identifier: str) -> Jwk | None:
        """The key with this `kid`, if the provider has published one."""
        known = self._known().get(identifier)
        if known is None:
            if fetch := self._begin_fetch():
                await asyncio.shield(fetch)
            return self._known().get(identifier)
        if self._age() > _FRESH_SECONDS:
            self._begin_fetch()
        return known

    async def close(self) -> None:
        if self._call is not None:
            self._call.abort()
        if self._fetch is not None:
            await asyncio.gather(self._fetch, return_exceptions=True)
        self._threads.shutdown(wait=False)

    def _known(self) -> dict[str, Jwk]:
        return self._keys if self._age() < _KEPT_SECONDS else {}

    def _age(self) -> float:
        return float("inf") if self._fetched is None else self._clock() - self._fetched

    def _begin_fetch(self) -> asyncio.Task[None] | None:
        """The one that is under way, or a new one if the last is long enough ago."""
        if self._fetch is not None and not self._fetch.done():
            return self._fetch
        if self._clock() < self._next_fetch:
            return None
        self._next_fetch = self._clock() + PAUSE_SECONDS
        self._fetch = asyncio.ensure_future(self._fetch_keys())
        return self._fetch

    async def _fetch_keys(self) -> None:
        try:
            found = await asyncio.get_running_loop().run_in_executor(self._threads, self._read_keys)
        except (CallFailedError, ValueError) as error:
            _log.warning("the keys of the issuer %s cannot be read: %s", self._issuer, error)
            return
        self._keys, self._fetched = found, self._clock()

    def _read_keys(self) -> dict[str, Jwk]:
        document = self._read(self._issuer.rstrip("/") + DISCOVERY)
        if document.get("issuer") != self._issuer:
            raise ValueError(f"its discovery document is that of {document.get('issuer')!r}")
        keys = self._read(check_url(str(document.get("jwks_uri")))).get("keys")
        if not isinstance(keys, list):
            raise ValueError("what its `jwks_uri` has is not a set of keys")
        listed = [cast("Jwk", key) for key in cast("list[object]", keys)[:_MOST_KEYS] if isinstance(key, dict)]
        return {key["kid"]: key for key in listed if isinstance(key.get("kid"), str)}

    def _read(self, url: str) -> dict[str, Any]:
        self._call = HttpCall(url, self._context, seconds=_CALL_SECONDS)
        answer = self._call.send("GET", headers={"Accept": "application/json"})
        if answer.status != 200:
            raise CallFailedError(f"{url} answers {answer.status}")
        document = json.loads(answer.body)
        if not isinstance(document, dict):
            raise ValueError(f"{url} is not a JSON object")
        return cast("dict[str, Any]", document)
