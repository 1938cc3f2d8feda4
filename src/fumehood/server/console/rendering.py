"""Templates become pages. Whatever a template shows is text, for the browser and for the eye.

Jinja escapes every value; before that, characters that hide, reorder or control are replaced by their numbers. Only
what our own functions have marked as HTML is taken as it is.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import jinja2
from markupsafe import Markup, escape

from fumehood.audit.words import dollars
from fumehood.characters import neutralise
from fumehood.server.console.code_view import highlighted, plain_lines

_HERE = Path(__file__).parent
STATIC = _HERE / "static"
_MOST_CHARACTERS = 4000
_UNITS = ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB"))
_OF_BYTES = ("bytes", "memory", "disk", "workspace")


def render(template: str, **context: object) -> str:
    return _environment().get_template(template).render(**context)


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_harmless,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "moment": moment,
        "clock": clock,
        "day": day,
        "size": size,
        "duration": duration,
        "code": highlighted,
        "lines": plain_lines,
        "short": short,
        "whole": whole,
    }
    environment.filters["amount"] = amount  # pyright: ignore[reportArgumentType]  # any function may be one
    environment.filters["dollars"] = dollars  # pyright: ignore[reportArgumentType]
    environment.globals["text_to_edit"] = escape  # pyright: ignore[reportArgumentType]  # what is sent back is what was there
    environment.globals["asset"] = asset  # pyright: ignore[reportArgumentType]  # any function may be one
    return environment


def _harmless(value: object) -> object:
    if value is None:
        return ""
    if isinstance(value, str) and not isinstance(value, Markup):
        shown = neutralise(value)
        return shown if len(shown) <= _MOST_CHARACTERS else f"{shown[:_MOST_CHARACTERS]} …"
    return value


def whole(value: object) -> Markup:
    """A text that a form sends back: shown from its first to its last character, whatever its length."""
    return escape(neutralise(str(value)))


def moment(value: object) -> Markup:
    """A time, which the page's script shows as local, too. What is none is shown as it is."""
    found = _as_time(value)
    if found is None:
        return escape(str(_harmless(str(value))))
    return _time(found, found.strftime("%Y-%m-%d %H:%M:%S UTC"))


def day(value: object) -> Markup:
    """A time of which the seconds say nothing."""
    found = _as_time(value)
    return escape("?") if found is None else _time(found, found.strftime("%Y-%m-%d %H:%M UTC"), "day")


def clock(value: object) -> Markup:
    """A time of which the day is known."""
    found = _as_time(value)
    return escape("??:??:??") if found is None else _time(found, found.strftime("%H:%M:%S"), "clock")


def _time(value: datetime, text: str, kind: str = "moment") -> Markup:
    exact = value.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return Markup('<time datetime="{}" class="{}">{}</time>').format(exact, kind, text)


def _as_time(value: object) -> datetime | None:
    try:
        if isinstance(value, int | float):
            return datetime.fromtimestamp(value, UTC)
        return datetime.fromisoformat(str(value)).astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        return None


def size(value: object) -> str:
    if not isinstance(value, int | float):
        return "?"
    for amount, unit in _UNITS:
        if value >= amount:
            return f"{value / amount:.1f} {unit}"
    return f"{value:g} B"


def amount(value: float, name: str) -> str:
    """Of a quota or a gauge: some are numbers, some bytes."""
    if any(word in name for word in _OF_BYTES):
        return size(value)
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def duration(value: object) -> str:
    """Of microseconds."""
    if not isinstance(value, int | float):
        return "?"
    if value < 1_000_000:
        return f"{value / 1000:.0f} ms"
    seconds = value / 1_000_000
    return f"{seconds:.1f} s" if seconds < 120 else f"{int(seconds // 60)} min {int(seconds % 60)} s"


def short(value: object, most: int = 16) -> str:
    """The beginning of an id or a digest."""
    text = str(value).removeprefix("sha256:")
    return text if len(text) <= most else text[:most]


@cache
def asset(name: str) -> str:
    """The address of a file of ours, which changes with its content."""
    content = hashlib.sha256((STATIC / name).read_bytes()).hexdigest()
    return f"/console/static/{name}?v={content[:16]}"
