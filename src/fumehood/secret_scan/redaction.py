"""Redaction: values of secrets replaced in text and bytes before they are written."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from fumehood.policy import Policy
from fumehood.policy.host_value import MissingValueError

_BLACK = "[redacted]"


@dataclass(frozen=True, slots=True)
class Redaction:
    """Longest first, so that a secret that contains another one leaves nothing of itself.

    In any case of letters: a name that is looked up is in the log in small ones, whatever was looked up.
    """

    values: tuple[str, ...] = ()

    @classmethod
    def of(cls, values: Iterable[str]) -> Redaction:
        found = {form for value in values for form in (value, value.strip()) if form}
        return cls(tuple(sorted(found, key=len, reverse=True)))

    @classmethod
    def for_policy(cls, policy: Policy, variables: Mapping[str, str]) -> Redaction:
        """The values that the policy's secrets have on this host, now. One that the host does not have cannot leak."""
        values: list[str] = []
        for secret in policy.secrets:
            with suppress(MissingValueError):
                values.append(secret.read(variables))
        return cls.of(values)

    def text(self, text: str) -> str:
        for value in self.values:
            if value.lower() in text.lower():
                text = re.sub(re.escape(value), _BLACK, text, flags=re.IGNORECASE)
        return text

    def data(self, data: bytes) -> bytes:
        for value in map(os.fsencode, self.values):
            if value.lower() in data.lower():
                data = re.sub(re.escape(value), _BLACK.encode(), data, flags=re.IGNORECASE)
        return data


NOTHING = Redaction()
