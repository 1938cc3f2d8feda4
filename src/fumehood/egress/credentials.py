"""The values of a policy's secrets, read once when a sandbox opens, and sent to their host and nowhere else.

Nothing here shows a value: not a repr, not an error.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

from fumehood.errors import UsageError
from fumehood.policy import Policy, Secret

_MOST_BYTES = 16 * 1024
# What may stand in a header: a line break would add headers of the secret's own.
_VALUE = re.compile(r"[!-~\u0080-\u00ff](?:[\t -~\u0080-\u00ff]*[!-~\u0080-\u00ff])?")
_SHORTEST_REDACTED = 6


class Credentials:
    """Name -> value, for one policy."""

    def __init__(self, policy: Policy) -> None:
        self._values = {secret.name: _read(secret) for secret in policy.secrets}

    def __repr__(self) -> str:
        return f"Credentials({', '.join(self._values)})"

    def headers(self, secrets: Iterable[Secret]) -> list[tuple[str, str]]:
        """The headers that carry these secrets."""
        return [
            (secret.inject.header, secret.inject.format.replace("{}", self._values[secret.name])) for secret in secrets
        ]

    def redactor(self, secrets: Iterable[Secret]) -> Redactor:
        return Redactor([self._values[secret.name].encode("latin-1") for secret in secrets])


class Redactor:
    """Takes values out of what a server sends back, also where one lies across two pieces. Lengths stay as they are.

    In any case of letters: a server that sends a value back as the name of a header or host may write it in small ones.
    """

    def __init__(self, values: Iterable[bytes]) -> None:
        self._values = [value.lower() for value in values if len(value) >= _SHORTEST_REDACTED]
        self._overlap = max((len(value) - 1 for value in self._values), default=0)
        self._held = b""

    def head(self, head: bytes) -> bytes:
        """A whole head: its first line, names and values."""
        return self._redact(head)

    def feed(self, data: bytes) -> bytes:
        """What can be passed on now; the rest waits, because it may be the beginning of a value."""
        if not self._values:
            return data
        data = self._redact(self._held + data)
        keep = self._possible_beginning(data)
        self._held = data[len(data) - keep :]
        return data[: len(data) - keep]

    def end(self) -> bytes:
        held, self._held = self._held, b""
        return held

    def _redact(self, data: bytes) -> bytes:
        for value in self._values:
            if value in data.lower():
                data = re.sub(re.escape(value), b"*" * len(value), data, flags=re.IGNORECASE)
        return data

    def _possible_beginning(self, data: bytes) -> int:
        """The longest end of the data that is the beginning of a value."""
        tail = data[-self._overlap :].lower() if self._overlap else b""
        for start in range(len(tail)):
            if any(value.startswith(tail[start:]) for value in self._values):
                return len(tail) - start
        return 0


def _read(secret: Secret) -> str:
    value = _from_environment(secret, os.environ) if secret.from_env is not None else _from_file(secret)
    if not value:
        raise UsageError(f"secret {secret.name}: {_origin(secret)} is empty; put the credential there")
    if len(value) > _MOST_BYTES or _VALUE.fullmatch(value) is None:
        raise UsageError(f"secret {secret.name}: {_origin(secret)} holds something that cannot stand in a header")
    return value


def _from_environment(secret: Secret, environment: Mapping[str, str]) -> str:
    value = environment.get(secret.from_env or "")
    if value is None:
        raise UsageError(f"secret {secret.name}: {_origin(secret)} is not set; set it where the sandbox is opened")
    return value.strip()


def _from_file(secret: Secret) -> str:
    try:
        with open(secret.from_file or "", "rb") as file:
            return file.read(_MOST_BYTES + 1).decode("utf-8").strip()
    except OSError as error:
        raise UsageError(f"secret {secret.name}: {_origin(secret)} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"secret {secret.name}: {_origin(secret)} is no text") from None


def _origin(secret: Secret) -> str:
    return f"variable {secret.from_env}" if secret.from_env is not None else f"file {secret.from_file}"
