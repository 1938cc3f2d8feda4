"""A display as a bundle of media types, and a failed run as the error of a cell."""

from __future__ import annotations

import base64
import re

from fumehood.frozen import frozen
from fumehood.notebook_output.html import harmless_html, picture
from fumehood.results import Display, RunResult, Status

_PICTURES = ("image/png", "image/jpeg", "image/gif")
_HTML, _PLAIN, _SVG = "text/html", "text/plain", "image/svg+xml"
# Viewers make HTML or links of these, so that their source is shown.
_SOURCES = ("text/markdown", "text/latex")
_ERROR_LINE = re.compile(r"([A-Za-z_][\w.]{0,99})(?:: (.*))?")


def media_bundle(display: Display) -> dict[str, object]:
    """Media type -> value as notebooks have it. Empty if nothing of the display is known to be harmless."""
    data, bundle = display.data, dict[str, object]()
    for kind in _PICTURES:
        if isinstance(value := data.get(kind), bytes):
            bundle[kind] = _encoded(value)
    if isinstance(markup := data.get(_HTML), str):
        bundle[_HTML] = harmless_html(markup)
    elif isinstance(drawing := data.get(_SVG), str | bytes) and not bundle:
        bundle[_HTML] = picture(_SVG, _encoded(drawing))
    plain = next((data[kind] for kind in (*_SOURCES, _PLAIN) if isinstance(data.get(kind), str)), None)
    if plain is not None:
        bundle[_PLAIN] = plain
    if "application/json" in data:
        bundle["application/json"] = data["application/json"]
    return bundle


def _encoded(value: str | bytes) -> str:
    content = value.encode("utf-8", "replace") if isinstance(value, str) else value
    return base64.b64encode(content).decode()


@frozen
class CellError:
    name: str
    value: str
    traceback: list[str]

    @property
    def line(self) -> str:
        return f"{self.name}: {self.value}" if self.value else self.name


def cell_error(result: RunResult, stderr: str) -> CellError:
    """The error of a cell. The traceback is what the session wrote to standard error."""
    lines = stderr.rstrip("\n").splitlines()
    is_its_own = result.status in (Status.ERROR, Status.CANCELLED)  # and not that of a limit
    match = _ERROR_LINE.fullmatch(lines[-1]) if lines and is_its_own else None
    name, value = (match[1], match[2] or "") if match else (str(result.cause), result.detail)
    return CellError(name, value, lines[-100:])
