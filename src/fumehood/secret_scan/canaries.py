"""Canaries: values that are planted where only a thief looks, and raise an alarm where they show up."""

from __future__ import annotations

import secrets
import string
from codecs import getincrementaldecoder
from collections.abc import Iterable
from dataclasses import dataclass

from fumehood.policy import Policy
from fumehood.policy.secret import SecretSource
from fumehood.secret_scan.forms import Form, forms_of
from fumehood.secret_scan.values import SecretValue

# How much a value can grow in the widest of its forms: escapes of eight digits.
GROWTH = 12


@dataclass(frozen=True, slots=True)
class CanaryAlert:
    canary: str
    where: str


def make_canary() -> str:
    """A value that looks worth stealing: of the form of an AWS access key, and of no account."""
    return "AKIA" + "".join(secrets.choice(string.ascii_uppercase + "234567") for _ in range(16))


def load_canaries(policy: Policy, source: SecretSource) -> tuple[SecretValue, ...]:
    """Those of the policy. One that the source does not have would raise no alarm, so it is an error."""
    return tuple(SecretValue(canary.name, canary.read(source)) for canary in policy.filters.canaries)


class CanaryWatch:
    """One stream of bytes on its way out, such as a connection: `feed` tells which canaries are in it, each once."""

    def __init__(self, canaries: Iterable[SecretValue], where: str) -> None:
        self._where = where
        self._decoder = getincrementaldecoder("utf-8")("surrogateescape")
        wanted: dict[Form, list[_Wanted]] = {}
        for canary in canaries:
            for form, needles in forms_of(canary.value.strip() or canary.value):
                wanted.setdefault(form, []).extend((canary.name, needle) for needle in needles)
        self._tracks = [_Track(form, of_form) for form, of_form in wanted.items()]
        self._seen: set[str] = set()

    def feed(self, data: bytes) -> tuple[CanaryAlert, ...]:
        """Before the data is passed on; what was cut in two is put together."""
        if not self._tracks:
            return ()
        text = self._decoder.decode(data)
        found = {name: None for track in self._tracks for name in track.feed(text) if name not in self._seen}
        self._seen.update(found)
        return tuple(CanaryAlert(name, self._where) for name in found)


_Wanted = tuple[str, str]


class _Track:
    """A stream as one form shows it; of what has passed, only as much as the longest find could begin in."""

    def __init__(self, form: Form, wanted: list[_Wanted]) -> None:
        self._form, self._wanted = form, wanted
        self._most = max(len(needle) for _, needle in wanted) - 1
        self._passed = self._waiting = ""

    def feed(self, text: str) -> list[str]:
        """The names of what is complete now; what waits is read as if nothing followed, since nothing may."""
        before = len(self._passed)
        ready, self._waiting = self._form.split(self._waiting + text)
        passed = self._passed + self._form.read(ready)
        whole = passed + self._form.read(self._waiting)
        self._passed = passed[-self._most :]
        return [name for name, needle in self._wanted if whole.find(needle, max(0, before - len(needle) + 1)) >= 0]
