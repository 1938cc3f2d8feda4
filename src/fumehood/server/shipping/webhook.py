"""Batches of records to an address of HTTP, signed as Standard Webhooks describes: receivers verify with its libraries.

https://www.standardwebhooks.com
"""

from __future__ import annotations

import hashlib
import hmac
import time
from base64 import b64decode, b64encode
from contextlib import suppress

from fumehood.server.http_call import CallFailedError, HttpCall, tls_context
from fumehood.server.shipping.chains import RecordBatch
from fumehood.server.shipping.settings import WebhookSettings
from fumehood.server.shipping.sinks import SinkError, read_secret

_LEAST_SECRET = 24
_PREFIX = "whsec_"


class HttpPost:
    """POST to one address; anything but a status of success is a failure."""

    def __init__(self, url: str, ca: str | None) -> None:
        self._url, self._context = url, tls_context(ca) if url.startswith("https:") else None
        self._call: HttpCall | None = None

    def send(self, body: bytes, headers: dict[str, str]) -> None:
        self._call = HttpCall(self._url, self._context)
        try:
            answer = self._call.send("POST", body, headers)
        except CallFailedError as error:
            raise SinkError(str(error)) from error
        if not 200 <= answer.status < 300:
            raise SinkError(f"{self._url} answers {answer.status}")

    def abort(self) -> None:
        if self._call is not None:
            self._call.abort()


class WebhookSink:
    def __init__(self, settings: WebhookSettings) -> None:
        self._post = HttpPost(settings.url, settings.ca)
        self._secret = _key(read_secret(settings.secret_file, _LEAST_SECRET))

    def send(self, batch: RecordBatch) -> None:
        identifier = f"{batch.log}_{batch.records[0].seq}_{batch.records[-1].seq}"
        body, moment = _body(batch), str(int(time.time()))
        self._post.send(
            body,
            {
                "Content-Type": "application/json",
                "webhook-id": identifier,
                "webhook-timestamp": moment,
                "webhook-signature": f"v1,{self._signature(identifier, moment, body)}",
            },
        )

    def abort(self) -> None:
        self._post.abort()

    def _signature(self, identifier: str, moment: str, body: bytes) -> str:
        signed = f"{identifier}.{moment}.".encode() + body
        return b64encode(hmac.digest(self._secret, signed, hashlib.sha256)).decode()


def _body(batch: RecordBatch) -> bytes:
    """Records as the log has them, each with its hash."""
    records = ",".join(f'{{"hash":"{record.hash.hex()}","record":{record.body}}}' for record in batch.records)
    tenant = "null" if batch.tenant is None else f'"{batch.tenant}"'
    return f'{{"type":"audit.records","log":"{batch.log}","tenant":{tenant},"records":[{records}]}}'.encode()


def _key(secret: str) -> bytes:
    """`whsec_` and base64, as Standard Webhooks writes secrets, or any other text as it is."""
    if secret.startswith(_PREFIX):
        with suppress(ValueError):
            return b64decode(secret.removeprefix(_PREFIX), validate=True)
    return secret.encode()
