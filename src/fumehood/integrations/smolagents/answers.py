"""Final answers as they come out of the sandbox: JSON in the format of smolagents' SafeSerializer, made values here.

The code in the sandbox may have written every byte of it. So this reads the format itself: SafeSerializer would
open an image in any format that Pillow knows, and reserve as much memory as the name of an array's type asks for.
"""

from __future__ import annotations

import base64
import importlib.util
import json
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any, cast

import PIL.Image

from fumehood.errors import UsageError

_PREFIX = "safe:"
_MOST_PIXELS = 64 * 1024 * 1024
_ARRAY_TYPES = frozenset(
    ["bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)), "float16", "float32", "float64"]
)

Node = Mapping[str, Any]


def read_answer(text: object) -> object:
    """Raises UsageError for what is not in the format."""
    try:
        if not isinstance(text, str) or not text.startswith(_PREFIX):
            raise ValueError("it is not in SafeSerializer's format")
        return _value(json.loads(text.removeprefix(_PREFIX)))
    except Exception as error:  # whatever the data made fail: a wrong type, a missing key, a number out of range
        raise UsageError(f"the final answer cannot be read: {type(error).__name__}: {error}") from error


def _value(node: object) -> object:
    if isinstance(node, list):
        return _values(cast("list[object]", node))
    if not isinstance(node, dict):
        return node
    entries = cast("dict[str, object]", node)
    kind = entries.get("__type__")
    if isinstance(kind, str) and kind in _READERS:
        return _READERS[kind](entries)
    return {key: _value(value) for key, value in entries.items()}


def _values(data: Any) -> list[object]:
    return [_value(item) for item in data]


def _image(node: Node) -> object:
    image = PIL.Image.open(BytesIO(base64.b64decode(node["data"])), formats=("PNG",))
    if image.width * image.height > _MOST_PIXELS:
        raise ValueError(f"an image of {image.width} x {image.height} is too large")
    return image


def _array(node: Node) -> object:
    """An array, or a list where numpy is not installed or would have to guess the elements' type."""
    if node["dtype"] not in _ARRAY_TYPES or importlib.util.find_spec("numpy") is None:
        return node["data"]
    import numpy as np

    return np.array(node["data"], dtype=node["dtype"])


def _dataclass(node: Node) -> object:
    """A mapping: its class is the sandbox's."""
    fields = {name: _value(value) for name, value in node["data"].items()}
    return {"__dataclass__": str(node["class_name"]), "__module__": str(node["module"]), **fields}


_READERS: dict[str, Callable[[Node], object]] = {
    "tuple": lambda node: tuple(_values(node["data"])),
    "set": lambda node: set(_values(node["data"])),
    "frozenset": lambda node: frozenset(_values(node["data"])),
    "dict_with_complex_keys": lambda node: {_value(key): _value(value) for key, value in node["data"]},
    "bytes": lambda node: base64.b64decode(node["data"]),
    "complex": lambda node: complex(node["real"], node["imag"]),
    "datetime": lambda node: datetime.fromisoformat(node["data"]),
    "date": lambda node: date.fromisoformat(node["data"]),
    "time": lambda node: time.fromisoformat(node["data"]),
    "timedelta": lambda node: timedelta(seconds=node["total_seconds"]),
    "Decimal": lambda node: Decimal(node["data"]),
    "Path": lambda node: Path(node["data"]),
    "PIL.Image": _image,
    "ndarray": _array,
    "dataclass": _dataclass,
}
