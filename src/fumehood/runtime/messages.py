"""Messages: frozen, typed, known by name, and encoded as JSON even inside one process.

A message is encoded once, when it is sent, and decoded for each recipient. So agents share no objects, what was checked
and recorded is what arrives, and a runtime of many machines does the same.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Any, ClassVar, Unpack, cast

from pydantic import BaseModel, ConfigDict, PydanticUndefinedAnnotation, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, SchemaSerializer, SchemaValidator

from fumehood.errors import MessageError, UsageError
from fumehood.runtime.identity import check_type

_MOST_PROBLEMS = 3


class Message(BaseModel):
    """The usual parent: `class Greeting(Message): ...`, or `class Greeting(Message, name="greeting.v1"): ...`."""

    # Every value of a field survives the way through JSON.
    model_config = ConfigDict(
        frozen=True, extra="forbid", ser_json_bytes="base64", val_json_bytes="base64", ser_json_inf_nan="strings"
    )
    message_name: ClassVar[str]

    def __init_subclass__(cls, *, name: str | None = None, **options: Unpack[ConfigDict]) -> None:
        super().__init_subclass__(**options)
        cls.message_name = name or cls.__name__


@dataclasses.dataclass(frozen=True, slots=True)
class Payload:
    """An encoded message."""

    name: str
    data: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class _MessageType:
    name: str
    type: type[object]
    validator: SchemaValidator
    serializer: SchemaSerializer


class MessageTypes:
    """The message types that one runtime knows, by name and by class."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._by_name: dict[str, _MessageType] = {}
        self._by_type: dict[type[object], _MessageType] = {}
        self._digests: dict[str, str] = {}

    def add(self, type: type[object], name: str | None = None) -> None:
        """UsageError for a second type of the same name: a recipient could not tell them apart."""
        shape = _shape(type, name)
        known = self._by_name.get(shape.name)
        if known is not None and known.type is not type:
            raise UsageError(
                f"there is a message {shape.name!r} already, {_path(known.type)}; give {_path(type)} another name: "
                f'class {type.__name__}(Message, name="...")'
            )
        former = self._by_type.get(type)
        if former is not None and former.name != shape.name:
            raise UsageError(f"{_path(type)} is the message {former.name!r} already, and has one name only")
        if known is None:
            self._by_name[shape.name] = self._by_type[type] = shape

    def names(self) -> list[str]:
        return sorted(self._by_name)

    def name_of(self, type: type[object]) -> str:
        return self._by_type[type].name

    def digest_of(self, name: str) -> str:
        """The digest of the message's schema: processes with another one would read it differently."""
        digest = self._digests.get(name)
        if digest is None:
            schema = TypeAdapter(self._by_name[name].type).json_schema()
            text = json.dumps(schema, sort_keys=True).encode()
            digest = self._digests[name] = f"sha256:{hashlib.sha256(text).hexdigest()}"
        return digest

    def encode(self, message: object) -> Payload:
        """MessageError if its type is not known, it is too large, or it does not validate."""
        shape = self._by_type.get(type(message))
        if shape is None:
            raise MessageError(
                f"{type(message).__name__} is not a known message: no registered agent takes or returns it. "
                f"Register one that does, or add it: runtime.messages.add({type(message).__name__})"
            )
        try:
            data = shape.serializer.to_json(message, warnings="error")
        except (PydanticSerializationError, ValueError, TypeError, RecursionError) as error:
            raise MessageError(f"the message {shape.name} cannot be written as JSON: {_first_line(error)}") from None
        self._check_size(shape.name, data)
        _validated(shape, data)
        return Payload(shape.name, data)

    def decode(self, payload: Payload) -> object:
        """A new object; MessageError if the name is not known, or the data is too large or does not validate."""
        shape = self._by_name.get(payload.name)
        if shape is None:
            raise MessageError(f"the message {payload.name[:80]!r} is not known")
        self._check_size(shape.name, payload.data)
        return _validated(shape, payload.data)

    def _check_size(self, name: str, data: bytes) -> None:
        if len(data) > self._most_bytes:
            raise MessageError(
                f"the message {name} has {len(data)} bytes, and {self._most_bytes} are the limit "
                "(RuntimeLimits.message_bytes); send a path or a URL instead of large content"
            )


def _shape(type: type[object], name: str | None) -> _MessageType:
    if issubclass(type, BaseModel):
        is_frozen, default = bool(type.model_config.get("frozen")), getattr(type, "message_name", type.__name__)
    elif dataclasses.is_dataclass(type):
        is_frozen, default = bool(cast("Any", type).__dataclass_params__.frozen), type.__name__
    else:
        raise UsageError(f"{_path(type)} cannot be a message: it is neither a pydantic model nor a dataclass")
    if not is_frozen:
        raise UsageError(f"{_path(type)} cannot be a message: it is not frozen and could change after it was checked")
    adapter = _adapter(type)
    validator, serializer = cast("Any", adapter.validator), cast("Any", adapter.serializer)
    return _MessageType(check_type(name or default, "a message's name"), type, validator, serializer)


def _adapter(type: type[object]) -> TypeAdapter[object]:
    try:
        adapter: TypeAdapter[object] = TypeAdapter(type)
        adapter.rebuild(raise_errors=True)
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        raise UsageError(f"{_path(type)} cannot be a message: {_first_line(error)}") from None
    return adapter


def _validated(shape: _MessageType, data: bytes) -> object:
    try:
        return shape.validator.validate_json(data)
    except ValidationError as error:
        problems = [
            f"{'.'.join(map(str, each['loc'])) or 'it'}: {each['msg']}"
            for each in error.errors(include_url=False, include_input=False)[:_MOST_PROBLEMS]
        ]
        raise MessageError(f"the message {shape.name} is not valid: {'; '.join(problems)}") from None
    except RecursionError:
        raise MessageError(f"the message {shape.name} is nested too deeply") from None


def _path(type: type[object]) -> str:
    return f"{type.__module__}.{type.__qualname__}"


def _first_line(error: Exception) -> str:
    """The first line of an error, without pydantic's heading."""
    lines = [line.strip() for line in str(error).splitlines() if not line.startswith("Pydantic serializer warnings")]
    return (lines or [type(error).__name__])[0][:200]
