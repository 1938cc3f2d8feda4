"""Canaries: values that are planted where only a thief looks, and raise an alarm where they show up."""

from __future__ import annotations

import os
import secrets
import string
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from fumehood.errors import UsageError
from fumehood.policy import Policy
from fumehood.sightings.values import Known, Seen

# How much a value can grow in the widest of its forms: escapes of eight digits.
GROWTH = 12


@dataclass(frozen=True, slots=True)
class Alarm:
    canary: str
    where: str


def make_canary() -> str:
    """A value that looks worth stealing: of the form of an AWS access key, and of no account."""
    return "AKIA" + "".join(secrets.choice(string.ascii_uppercase + "234567") for _ in range(16))


def load_canaries(policy: Policy, variables: Mapping[str, str]) -> tuple[Known, ...]:
    """Those of the policy. One that is not there would raise no alarm, so it is an error."""
    found: list[Known] = []
    for canary in policy.filters.canaries:
        value = variables.get(canary.from_env, "") if canary.from_env is not None else ""
        if canary.from_file is not None:
            with suppress(OSError), open(canary.from_file, "rb") as file:
                value = os.fsdecode(file.read())
        if not value.strip():
            origin = f"variable {canary.from_env}" if canary.from_env else f"file {canary.from_file}"
            raise UsageError(f"the canary {canary.name!r} has no value: {origin} is empty or cannot be read")
        found.append(Known(canary.name, value.strip()))
    return tuple(found)


class CanaryWatch:
    """One stream of bytes on its way out, such as a connection: `feed` tells which canaries are in it, each once."""

    def __init__(self, canaries: Iterable[Known], where: str) -> None:
        self._canaries = tuple(canaries)
        self._where = where
        self._kept = ""
        self._seen: set[str] = set()
        self._window = max((len(canary.value) * GROWTH for canary in self._canaries), default=0)

    def feed(self, data: bytes) -> tuple[Alarm, ...]:
        """Before the data is passed on; what was cut in two is put together."""
        if not self._window:
            return ()
        text = self._kept + data.decode("utf-8", "surrogateescape")
        self._kept = text[-self._window :]
        seen = Seen(text)
        found = [each.name for each in self._canaries if each.name not in self._seen and any(seen.find(each))]
        self._seen.update(found)
        return tuple(Alarm(name, self._where) for name in found)
