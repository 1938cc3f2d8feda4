"""How many sandboxes with a name and snapshots there may be, how large together, and how long they stay unused."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from fumehood.errors import UsageError
from fumehood.policy import format_size
from fumehood.policy.quantities import GIB, parse_size

VARIABLE = "FUMEHOOD_SANDBOX_LIMITS"
DAY_SECONDS = 24 * 3600
_FORM = "sandboxes=100,snapshots=1000,size=20G,days=180"
_NUMBER = re.compile(r"[0-9]{1,7}")
_BLOCK_BYTES = 4096


@dataclass(frozen=True, slots=True)
class StoreLimits:
    sandboxes: int = 100
    snapshots: int = 1000
    size_bytes: int = 20 * GIB
    """Of all files of the store, as `charge` counts them."""
    days: int = 180
    """What was not used for so long is removed by `hood gc`; 0 is never."""

    @classmethod
    def read(cls, variables: Mapping[str, str]) -> StoreLimits:
        limits = cls()
        for part in filter(None, variables.get(VARIABLE, "").split(",")):
            key, equals, value = part.strip().partition("=")
            limits = limits.changed(key, value) if equals else _refuse(part)
        return limits

    def changed(self, key: str, value: str) -> StoreLimits:
        if key == "size":
            try:
                return replace(self, size_bytes=parse_size(value))
            except ValueError as error:
                raise UsageError(f"{VARIABLE}: size={value}: {error}") from None
        if key not in ("sandboxes", "snapshots", "days") or not _NUMBER.fullmatch(value):
            return _refuse(f"{key}={value}")
        return replace(self, **{key: int(value)})

    def check_sandboxes(self, count: int) -> None:
        if count >= self.sandboxes:
            raise UsageError(
                f"there are {count} named sandboxes, and {self.sandboxes} is the limit; remove some with "
                f"`hood sandbox rm`, or raise it with {VARIABLE}=sandboxes={self.sandboxes * 2}"
            )

    def check_snapshots(self, count: int) -> None:
        if count >= self.snapshots:
            raise UsageError(
                f"there are {count} snapshots, and {self.snapshots} is the limit; remove some with "
                f"`hood sandbox rm --snapshot`, or raise it with {VARIABLE}=snapshots={self.snapshots * 2}"
            )

    def check_size(self, size_bytes: int) -> None:
        if size_bytes > self.size_bytes:
            raise UsageError(
                f"sandboxes and snapshots would take {format_size(size_bytes)} together, and "
                f"{format_size(self.size_bytes)} is the limit; remove some with `hood sandbox rm`, run `hood gc`, or "
                f"raise it with {VARIABLE}=size={format_size(self.size_bytes * 2)}"
            )


def charge(size_bytes: int) -> int:
    """What a file of this size takes of the disk: whole blocks, and one more for its name and itself."""
    return (size_bytes // _BLOCK_BYTES + 1) * _BLOCK_BYTES


def _refuse(part: str) -> StoreLimits:
    raise UsageError(f"{VARIABLE}: {part!r} is not a limit; write it like {_FORM}")
