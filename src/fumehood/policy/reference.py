"""The reference of the policy file, written from the models: every key with its kind, its default and its meaning."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from fumehood.policy.model import Policy
from fumehood.policy.quantities import Quantity, format_duration, format_number
from fumehood.policy.section import Section

_HEAD = """\
# The policy file

A policy is YAML. A key is optional unless its default is "required", and a policy without keys denies all that can be
denied. Durations are written like `500ms`, `30s`, `2m` or `1h`, sizes like `64K`, `256M` or `1G`. A key that does not
exist is an error that names the nearest one; `hood policy check FILE` finds it without running anything.

This page is written from the program itself: `hood policy reference`.
"""
_KINDS = {str: "text", int: "whole number", float: "number", bool: "true or false"}


def write_reference() -> str:
    """The whole page, as Markdown."""
    return "\n".join([_HEAD, *_tables(Policy, "", "The top of the file")])


def _tables(section: type[Section], prefix: str, title: str) -> Iterator[str]:
    yield f"## {title}\n"
    yield "| key | what it takes | default | what it does |\n|---|---|---|---|"
    for name, field in section.model_fields.items():
        cells = (f"`{prefix}{name}`", _kind(field.annotation, field.metadata), _default(field), field.description or "")
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
    yield ""
    for name, field in section.model_fields.items():
        if inner := _inner_section(field.annotation):
            items = "[]" if get_origin(field.annotation) is tuple else ""
            yield from _tables(inner, f"{prefix}{name}{items}.", f"`{prefix}{name}`")


def _inner_section(annotation: Any) -> type[Section] | None:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    return next((found for part in get_args(annotation) if (found := _inner_section(part))), None)


def _kind(annotation: Any, metadata: list[Any]) -> str:
    """The type of a field in a word, or its possible values."""
    if mark := next((mark for mark in metadata if isinstance(mark, Quantity)), None):
        return "duration" if mark.format is format_duration else "size"
    arguments = get_args(annotation)
    match get_origin(annotation):
        case origin if origin is Annotated:
            return _kind(arguments[0], list(arguments[1:]))
        case origin if origin is Literal:
            return ", ".join(f"`{value}`" for value in arguments)
        case origin if origin in (Union, types.UnionType):
            return _kind(next(part for part in arguments if part is not type(None)), [])
        case origin if origin is tuple:
            return f"list: {_kind(arguments[0], [])}"
        case _:
            return "mapping" if _inner_section(annotation) else _KINDS[annotation]


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is None or value == () or isinstance(value, Section):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    mark = next((mark for mark in field.metadata if isinstance(mark, Quantity)), None)
    return f"`{mark.format(value) if mark else _plain(value)}`"


def _plain(value: object) -> str:
    return format_number(value) if isinstance(value, int | float) else str(value)
