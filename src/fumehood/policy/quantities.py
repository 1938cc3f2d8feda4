"""Sizes and durations: parses the text in policies into numbers, and formats numbers for messages.

Owns both directions so that they cannot drift apart: parsing what formatting printed gives the same number.
Knows nothing of the keys that use them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BeforeValidator, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from fumehood.frozen import frozen

KIB, MIB, GIB, TIB = (1024**power for power in (1, 2, 3, 4))
MAX_SIZE = 1024 * TIB
MIN_SECONDS, MAX_SECONDS = 0.001, 720 * 3600.0

_SIZE_UNITS = {"T": TIB, "G": GIB, "M": MIB, "K": KIB, "": 1}
_UNITS_MS = {"h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
# Bounded, so that no text costs more than a glance, however long.
_NUMBER = r"(\d{1,20})(?:\.(\d{1,20}))?"
# The same two for JSON schemas, whose dialect has no flags.
_SIZE_PATTERN = r"^[0-9]{1,20}(\.[0-9]{1,20})? ?([KMGTkmgt]([Ii]?[Bb])?|[Bb])?$"
_DURATION_PATTERN = r"^[0-9]{1,20}(\.[0-9]{1,20})? ?(ms|s|m|h)?$"
_SIZE = re.compile(rf"{_NUMBER} ?(?:([KMGT])(?:i?B)?|B)?", re.IGNORECASE | re.ASCII)
_DURATION = re.compile(rf"{_NUMBER} ?(ms|s|m|h)?", re.ASCII)
_SIZE_HELP = "a size is a whole number of bytes from 1 to 1024T, written like 64K, 256M, 1.5G or 1048576"
_DURATION_HELP = "a duration goes from 1ms to 720h and is written like 500ms, 30s, 2m, 1h or 2.5"


@frozen
class Quantity:
    """Marks a field whose number has a unit, so that it is shown the way it is written."""

    format: Callable[[float], str]
    parse: Callable[[object], float]
    pattern: str
    """What its text looks like, as a JSON schema has it."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"anyOf": [handler(schema), {"type": "string", "pattern": self.pattern}]}


@frozen
class Bounds:
    """Validates that a number is within the range that makes sense for its key."""

    low: float
    high: float
    format: Callable[[float], str] | None = None

    def check(self, value: float) -> float:
        if not self.low <= value <= self.high:
            words = self.format or format_number
            raise ValueError(f"must be from {words(self.low)} to {words(self.high)}")
        return value

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        made = handler(schema)
        number = next(iter(made.get("anyOf", [made])))
        number |= {"minimum": self.low, "maximum": self.high}
        return made


def parse_size(value: object) -> int:
    """Bytes from `256M` or a plain whole number; suffixes are binary multiples."""
    if isinstance(value, str):
        value = _size_from_text(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_SIZE:
        raise ValueError(_SIZE_HELP)
    return value


def format_size(size_bytes: float) -> str:
    """The shortest exact spelling: 268435456 is `256M`, 1000 is `1000B`."""
    size = int(size_bytes)
    units = ((suffix, unit) for suffix, unit in _SIZE_UNITS.items() if size % unit == 0)
    suffix, unit = next(units) if size else ("", 1)
    return f"{size // unit}{suffix or 'B'}"


def parse_duration(value: object) -> float:
    """Seconds from `500ms`, `30s`, `2m`, `1h` or a plain number."""
    if isinstance(value, str):
        value = _seconds_from_text(value)
    # NaN fails the comparison too, which is why it is written as a range that must hold.
    if isinstance(value, bool) or not isinstance(value, int | float) or not MIN_SECONDS <= value <= MAX_SECONDS:
        raise ValueError(_DURATION_HELP)
    return float(value)


def format_duration(seconds: float) -> str:
    """The shortest exact spelling: 120.0 is `2m`, 0.5 is `500ms`, 1.5 is `1.5s`."""
    for suffix, unit_ms in _UNITS_MS.items():
        count = round(seconds * 1000 / unit_ms)
        if count * unit_ms / 1000 == seconds and (suffix != "ms" or seconds < 1):
            return f"{count}{suffix}"
    return f"{seconds!r}s"


def format_number(number: float) -> str:
    """A plain number, exact, without a trailing .0."""
    return repr(number).removesuffix(".0")


def _size_from_text(text: str) -> int:
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(_SIZE_HELP)
    digits, scale = _decimal(match)
    size, rest = divmod(digits * _SIZE_UNITS[(match[3] or "").upper()], scale)
    if rest:
        raise ValueError(_SIZE_HELP)
    return size


def _seconds_from_text(text: str) -> float:
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(_DURATION_HELP)
    digits, scale = _decimal(match)
    return digits * _UNITS_MS[match[3] or "s"] / (1000 * scale)


def _decimal(match: re.Match[str]) -> tuple[int, int]:
    """The number as a fraction of whole numbers, because floats would round before they are checked."""
    fraction = match[2] or ""
    return int(match[1] + fraction), 10 ** len(fraction)


Size = Annotated[int, BeforeValidator(parse_size), Quantity(format_size, parse_size, _SIZE_PATTERN)]
Duration = Annotated[
    float, BeforeValidator(parse_duration), Quantity(format_duration, parse_duration, _DURATION_PATTERN)
]
