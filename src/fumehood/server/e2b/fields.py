"""Fields of messages, checked: one of another kind than it should be is an error that names it."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, TypeVar, cast

from fumehood.errors import UsageError

T = TypeVar("T", str, int, bool)


def field(message: Mapping[str, Any], name: str, kind: type[T], default: T | None = None) -> T:
    """Without a default it has to be there."""
    value = message.get(name, default)
    if value is None:
        value = default
    if type(value) is not kind:
        raise UsageError(f"{name} must be {_NAMES[kind]}")
    return cast("T", value)


def section(message: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """An object, empty if it is not there."""
    value = message.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UsageError(f"{name} must be an object")
    return cast("Mapping[str, Any]", value)


def texts(message: Mapping[str, Any], name: str) -> dict[str, str]:
    """A mapping of names to texts."""
    values = section(message, name)
    for key, value in values.items():
        if not isinstance(value, str):
            raise UsageError(f"{name}: the value of {key!r} must be text")
    return dict(values)


def words(message: Mapping[str, Any], name: str) -> list[str]:
    value: object = message.get(name) or []
    if not isinstance(value, list) or not all(isinstance(each, str) for each in cast("list[object]", value)):
        raise UsageError(f"{name} must be a list of texts")
    return cast("list[str]", value)


def decoded(message: Mapping[str, Any], name: str) -> bytes:
    try:
        return base64.b64decode(field(message, name, str, ""), validate=True)
    except binascii.Error:
        raise UsageError(f"{name} must be base64") from None


_NAMES: dict[type, str] = {str: "text", int: "a whole number", bool: "true or false"}
