"""The reference of the policy file, written from the models: every key with its kind, its default and its meaning.

Three forms of the same: a page for people, the entry of one key, and a JSON schema for editors.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

from pydantic.fields import FieldInfo

from fumehood.errors import UsageError
from fumehood.policy.model import Policy
from fumehood.policy.quantities import Quantity, format_duration, format_number
from fumehood.policy.section import Section

_HEAD = """\
# The policy file

A policy is YAML. A key is optional unless its default is "required", and a policy without keys denies all that can be
denied. Durations are written like `500ms`, `30s`, `2m` or `1h`, sizes like `64K`, `256M` or `1G`. A key that does not
exist is an error that names the nearest one; `hood policy check FILE` finds it without running anything.

This page is written from the program itself: `hood policy reference`. `hood policy explain KEY` prints the entry of one
key, and `hood policy schema` a JSON schema, with which editors complete and check policies while they are written: save
it beside the policy and begin the file with `# yaml-language-server: $schema=policy.schema.json`.
"""
_KINDS = {str: "text", int: "whole number", float: "number", bool: "true or false"}


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """One key. `name` is dotted, with `[]` behind the name of a list: `network.allow[].host`."""

    name: str
    kind: str
    default: str
    """As it is written in a file; "required" where there is none, empty where the key is best left out."""
    description: str
    inner: type[Section] | None
    """The section that the key, or each item of its list, holds."""

    @property
    def prefix(self) -> str:
        """What the names of the keys below begin with."""
        return f"{self.name}{'[]' if self.kind.startswith('list') else ''}."


def entries(section: type[Section] = Policy, prefix: str = "") -> Iterator[KeyEntry]:
    """The keys of a section, in the order of the models, without those of the sections in it."""
    for name, field in section.model_fields.items():
        kind, inner = _kind(field.annotation, field.metadata), _inner_section(field.annotation)
        yield KeyEntry(prefix + name, kind, _default(field), field.description or "", inner)


def find_entry(name: str) -> KeyEntry:
    """The entry of a key; its name with or without `[]`."""
    known = {entry.name.replace("[]", ""): entry for entry in _all_entries()}
    wanted = name.strip().removesuffix(".").replace("[]", "")
    if wanted in known:
        return known[wanted]
    same_end = [key for key in known if key.rpartition(".")[2] == wanted]
    guess = same_end or get_close_matches(wanted, known, n=1)
    advice = f"did you mean {' or '.join(guess)}?" if guess else "`hood policy reference` lists all"
    raise UsageError(f"{name!r} is neither a key of a policy nor a file; {advice}")


def write_reference() -> str:
    """The whole page, as Markdown."""
    return "\n".join([_HEAD, *_tables(Policy, "", "The top of the file")])


def json_schema() -> dict[str, object]:
    """A schema that accepts every valid policy. What takes more than a look at one value, only loading checks."""
    schema = _without_titles(Policy.model_json_schema())
    for section in _sections():
        _describe(schema if section is Policy else schema["$defs"][section.__name__], section)
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Fumehood policy"}
    return {**head, **schema, "description": "What a sandbox may do. A policy without keys denies everything."}


def _describe(schema: dict[str, Any], section: type[Section]) -> None:
    """The docstrings of the models explain the code, so they go. Defaults are written as in a file."""
    schema.pop("description", None)
    for entry in entries(section):
        if entry.kind in ("size", "duration") and entry.default:
            schema["properties"][entry.name]["default"] = entry.default


def _sections() -> set[type[Section]]:
    return {Policy, *(entry.inner for entry in _all_entries() if entry.inner)}


def _without_titles(node: Any) -> Any:
    """Titles repeat the names of the keys; a property that is called `title` is a mapping, and stays."""
    match node:
        case dict():
            items = cast("dict[str, Any]", node).items()
            return {key: _without_titles(item) for key, item in items if key != "title" or isinstance(item, dict)}
        case list():
            return [_without_titles(item) for item in cast("list[Any]", node)]
        case _:
            return node


def _all_entries(section: type[Section] = Policy, prefix: str = "") -> Iterator[KeyEntry]:
    for entry in entries(section, prefix):
        yield entry
        if entry.inner:
            yield from _all_entries(entry.inner, entry.prefix)


def _tables(section: type[Section], prefix: str, title: str) -> Iterator[str]:
    yield f"## {title}\n"
    yield "| key | what it takes | default | what it does |\n|---|---|---|---|"
    for entry in entries(section, prefix):
        default = f"`{entry.default}`" if entry.default not in ("", "required") else entry.default
        cells = (f"`{entry.name}`", entry.kind, default, entry.description)
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
    yield ""
    for entry in entries(section, prefix):
        if entry.inner:
            yield from _tables(entry.inner, entry.prefix, f"`{entry.name}`")


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
        return str(value).lower()
    mark = next((mark for mark in field.metadata if isinstance(mark, Quantity)), None)
    return mark.format(value) if mark else _plain(value)


def _plain(value: object) -> str:
    return format_number(value) if isinstance(value, int | float) else str(value)
