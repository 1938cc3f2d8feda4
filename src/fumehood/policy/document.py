"""YAML text to plain data, with the line of every key.

Reads the parser's events itself, so that nothing is ever constructed from a tag, repeated by an alias or guessed:
plain scalars follow YAML 1.2's core schema (`yes`, `1:30` and dates are text). Knows no key of the policy.
Imported only when a file is read, because the YAML library is slow to import.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import yaml

from fumehood.policy.source import Path, PolicyProblem, UnreadableError, shown

MAX_DEPTH = 16
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?[0-9]{1,60}", re.ASCII)
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]{1,6})?", re.ASCII)
_SPECIAL = {".nan": math.nan, ".inf": math.inf, "-.inf": -math.inf}


class Document:
    """The data of one document, the line of each of its keys, and the mistakes that YAML itself would let pass."""

    def __init__(self, text: str) -> None:
        self.lines: dict[Path, int] = {}
        self.problems: list[PolicyProblem] = []
        self._events = _read_events(text)
        self.data = self._read_document()

    def _read_document(self) -> dict[str, object]:
        next(self._events)
        if isinstance(next(self._events), yaml.StreamEndEvent):
            return {}
        data = self._read_root(next(self._events))
        next(self._events)
        if not isinstance(event := next(self._events), yaml.StreamEndEvent):
            raise UnreadableError("a second document starts here; a policy file holds one", _line(event))
        return data

    def _read_root(self, event: yaml.Event) -> dict[str, object]:
        if isinstance(event, yaml.MappingStartEvent):
            self._refuse_tag(event, ())
            return self._read_mapping(())
        if isinstance(event, yaml.ScalarEvent) and event.implicit[0] and event.value == "":
            return {}
        kind = f"the single value {shown(event.value)}" if isinstance(event, yaml.ScalarEvent) else "a list"
        raise UnreadableError(f"the file holds {kind}; a policy is a mapping such as `version: 1`", _line(event))

    def _read_value(self, event: yaml.Event, path: Path) -> object:
        if isinstance(event, yaml.AliasEvent):
            return self._refuse(event, path, "is an alias; aliases are not supported, write the value out")
        self._refuse_tag(event, path)
        if len(path) > MAX_DEPTH:
            raise UnreadableError(f"nested deeper than {MAX_DEPTH} levels; no policy is", _line(event), path[:3])
        if isinstance(event, yaml.MappingStartEvent):
            return self._read_mapping(path)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._read_sequence(path)
        assert isinstance(event, yaml.ScalarEvent)
        return self._read_scalar(event, path)

    def _read_mapping(self, path: Path) -> dict[str, object]:
        data: dict[str, object] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._read_key(event, path)
            here = (*path, key)
            if key in data:
                line = _line(event)
                self.problems.append(
                    PolicyProblem(here, f"is given twice; the first is on line {self.lines[here]}", line)
                )
                self._skip(next(self._events))
                continue
            self.lines[here] = _line(event)
            data[key] = self._read_value(next(self._events), here)
        return data

    def _read_key(self, event: yaml.Event, path: Path) -> str:
        if not isinstance(event, yaml.ScalarEvent):
            raise UnreadableError("a key must be text, not a list, a mapping or an alias", _line(event), path)
        key = event.value if not event.implicit[0] else _resolve_plain(event.value)
        if isinstance(key, str):
            return key
        self._refuse(event, (*path, event.value), "this key is not text; keys are names such as memory")
        return event.value

    def _read_sequence(self, path: Path) -> list[object]:
        data: list[object] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            here = (*path, len(data))
            self.lines[here] = _line(event)
            data.append(self._read_value(event, here))
        return data

    def _read_scalar(self, event: yaml.ScalarEvent, path: Path) -> object:
        if not event.implicit[0]:
            return event.value
        value = _resolve_plain(event.value)
        # "methods:" with every item commented out must not come to mean "any method".
        return self._refuse(event, path, "has no value; write one, or remove the key") if value is None else value

    def _skip(self, event: yaml.Event) -> None:
        depth = 0
        while True:
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth == 0:
                return
            event = next(self._events)

    def _refuse_tag(self, event: yaml.Event, path: Path) -> None:
        if isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent) and event.tag is not None:
            self._refuse(event, path, f"has the tag {shown(event.tag)}; tags are not supported, remove it")

    def _refuse(self, event: yaml.Event, path: Path, message: str) -> None:
        self.problems.append(PolicyProblem(path, message, _line(event)))


def _resolve_plain(text: str) -> object:
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if _INT.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else _SPECIAL.get(text.lower(), text)


def _read_events(text: str) -> Iterator[yaml.Event]:
    try:
        yield from yaml.parse(text, Loader=yaml.SafeLoader)  # pyright: ignore[reportUnknownMemberType] - has no types
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise UnreadableError(_syntax_words(error), mark.line + 1 if mark else 1) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise UnreadableError("contains a control character that YAML does not allow", line) from None
    except (ValueError, OverflowError):
        # The library lets these slip for escapes such as "\UFFFFFFFF" and for endless version numbers.
        raise UnreadableError("contains an escape or a number that YAML does not allow", 1) from None


def _syntax_words(error: yaml.MarkedYAMLError) -> str:
    if "'\\t'" in (error.problem or ""):
        return "contains a tab where YAML expects spaces; indent with spaces"
    words = ", ".join(part for part in (error.context, error.problem) if part)
    return f"is not valid YAML: {words}"


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark is not None else 1
