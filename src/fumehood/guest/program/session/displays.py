"""An object as a bundle of media types, from the `_repr_*_` methods that notebooks know."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, cast

from . import tracebacks

# What the method of a media type may return.
_METHODS: dict[str, tuple[str, tuple[type, ...]]] = {
    "text/html": ("_repr_html_", (str,)),
    "text/markdown": ("_repr_markdown_", (str,)),
    "text/latex": ("_repr_latex_", (str,)),
    "image/svg+xml": ("_repr_svg_", (str,)),
    "image/png": ("_repr_png_", (bytes, str)),
    "image/jpeg": ("_repr_jpeg_", (bytes, str)),
    "application/pdf": ("_repr_pdf_", (bytes, str)),
    "application/json": ("_repr_json_", (dict, list, str)),
    "application/javascript": ("_repr_javascript_", (str,)),
}
_NOBODY_HAS_THIS = "_canary_method_that_nobody_has_"

Bundle = tuple[dict[str, object], dict[str, object]]
Renderer = Callable[[object], Mapping[str, object]]


def represent(value: object, render: Renderer) -> Bundle:
    """A method that fails is shown on standard error and left out; the others go on."""
    data, metadata = _mime_bundle(value)
    rendered: Mapping[str, object] = _attempt(lambda: render(value)) or {}
    data = {**rendered, **data}
    for media_type, (name, types) in _METHODS.items():
        if media_type not in data:
            _add(data, metadata, media_type, types, _call(value, name))
    if "text/plain" not in data:
        _add(data, metadata, "text/plain", (str,), _attempt(lambda: repr(value)))
    return data, metadata


def displays_itself(value: object) -> bool:
    method = _method(value, "_ipython_display_")
    if method is None:
        return False
    _attempt(method)
    return True


def _mime_bundle(value: object) -> Bundle:
    data, metadata = _with_metadata(_call(value, "_repr_mimebundle_", include=None, exclude=None))
    return (dict(data) if isinstance(data, Mapping) else {}), metadata  # pyright: ignore[reportUnknownArgumentType]


def _add(
    data: dict[str, object], metadata: dict[str, object], media_type: str, types: tuple[type, ...], returned: object
) -> None:
    content, details = _with_metadata(returned)
    if content is None:
        return
    if not isinstance(content, types):
        print(f"{media_type} was left out: its method returned {type(content).__name__}", file=sys.stderr)
        return
    data[media_type] = content
    if details:
        metadata[media_type] = details


def _with_metadata(returned: object) -> tuple[object, dict[str, object]]:
    """A method returns data, or data and metadata."""
    parts = cast("tuple[object, ...]", returned) if isinstance(returned, tuple) else (returned, None)
    if len(parts) != 2:
        return parts, {}
    content, details = parts
    return content, dict(cast("Mapping[str, object]", details)) if isinstance(details, Mapping) else {}


def _call(value: object, name: str, **options: object) -> object:
    method = _method(value, name)
    return None if method is None else _attempt(lambda: method(**options))


def _method(value: object, name: str) -> Callable[..., object] | None:
    """None for a class, whose methods are those of its instances, and for what has an attribute of any name."""
    if isinstance(value, type):
        return None
    try:
        method: Any = getattr(value, name, None)
        return method if callable(method) and getattr(value, _NOBODY_HAS_THIS, None) is None else None
    except Exception:
        return None


def _attempt(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except Exception as error:
        tracebacks.show(error)
        return None
