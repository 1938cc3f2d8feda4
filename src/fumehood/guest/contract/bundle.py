"""A display on the wire: one object in several media types, as a header and one body without base64.

Both ends use it. The header is `{"display": {media type: [kind, length], ...}, "metadata": {...}}`; the body holds the
values one after the other in the header's order. What comes from inside is not to be trusted: `decode_bundle` accepts
nothing that `encode_bundle` could not have made.
"""

from __future__ import annotations

import binascii
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from .frames import FrameError, Header, is_shallow

MAX_DISPLAY_BYTES = 16 * 1024 * 1024
MAX_METADATA_BYTES = 64 * 1024
MAX_TYPES = 32
MAX_DISPLAY_HEADER_BYTES = 4 * MAX_METADATA_BYTES
"""Room for the names of the media types, and metadata in which every character is escaped."""
# Far beyond what charts need, and little enough for the recursive functions that will go through it.
MAX_DEPTH = 64

Data = dict[str, object]

_MEDIA_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,99}/[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,99}", re.ASCII)
_TEXT, _JSON, _BYTES = "text", "json", "bytes"
_SCRIPTS = ("application/javascript", "application/xml")


def encode_bundle(data: Mapping[str, object], metadata: Mapping[str, object]) -> tuple[Header, bytes]:
    """Leaves out what cannot be sent: a value that its media type cannot have, metadata that is not JSON."""
    pieces: dict[str, tuple[str, bytes]] = {}
    for media_type, value in data.items():
        piece = _encode_value(media_type, value)
        if piece is not None and len(pieces) < MAX_TYPES:
            pieces[media_type] = piece
    size = sum(len(content) for _, content in pieces.values())
    if size > MAX_DISPLAY_BYTES:
        pieces = {"text/plain": (_TEXT, _too_large(size).encode())}
    header: Header = {
        "display": {media_type: [kind, len(content)] for media_type, (kind, content) in pieces.items()},
        "metadata": _sendable_metadata(metadata),
    }
    return header, b"".join(content for _, content in pieces.values())


def decode_bundle(header: Header, body: bytes, admit: Callable[[bytes], None] | None = None) -> tuple[Data, Data]:
    """Returns data and metadata. Raises FrameError for whatever does not keep to the format.

    `admit` is called with each JSON value before it is parsed, and may raise.
    """
    try:
        pieces = _checked_pieces(header.get("display"))
        if sum(length for _, _, length in pieces) != len(body) or len(body) > MAX_DISPLAY_BYTES:
            raise FrameError("a display's lengths are not those of its body")
        data: Data = {}
        for media_type, kind, length in pieces:
            if kind == _JSON and admit:
                admit(body[:length])
            data[media_type] = _decode_value(kind, body[:length])
            body = body[length:]
        return data, _checked_metadata(header.get("metadata"))
    except FrameError:
        raise
    except (ValueError, TypeError, RecursionError) as error:
        raise FrameError("a display holds a value that its media type cannot have") from error


def _too_large(size: int) -> str:
    limit = MAX_DISPLAY_BYTES // 1024**2
    return f"[a display of {size / 1024**2:.1f} MiB was left out: the largest that is sent has {limit} MiB]"


def _kinds(media_type: str) -> tuple[str, ...]:
    if media_type.startswith("text/") or media_type.endswith("+xml") or media_type in _SCRIPTS:
        return (_TEXT,)
    if media_type == "application/json" or media_type.endswith("+json"):
        return (_JSON,)
    if media_type.startswith(("image/", "audio/", "video/")) or media_type == "application/pdf":
        return (_BYTES,)
    return (_TEXT, _BYTES)


def _encode_value(media_type: object, value: object) -> tuple[str, bytes] | None:
    if not isinstance(media_type, str) or not _MEDIA_TYPE.fullmatch(media_type):
        return None
    kinds = _kinds(media_type)
    try:
        if _JSON in kinds:
            return _JSON, _encode_json(value)
        if isinstance(value, str):
            if _TEXT in kinds:
                return _TEXT, value.encode("utf-8", "backslashreplace")
            return _BYTES, binascii.a2b_base64(value)  # what notebooks put there in place of bytes
        if isinstance(value, (bytes, bytearray, memoryview)):
            content = bytes(cast("bytes", value))
            return (_BYTES, content) if _BYTES in kinds else (_TEXT, content.decode("utf-8", "replace").encode())
    except (ValueError, TypeError, RecursionError):
        return None
    return None


def _encode_json(value: object) -> bytes:
    # There and back again: what is sent has text for keys, and no halves of characters.
    return _strict_json(json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")))


def _strict_json(value: object) -> bytes:
    """Raises ValueError for what others would not accept as JSON: infinities, halves of characters, endless nesting."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in _children(node)]
        if not level:
            return json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    raise ValueError("too deeply nested")


def _children(node: Any) -> Iterable[object]:
    if isinstance(node, dict):
        return cast("dict[str, object]", node).values()
    return cast("list[object]", node) if isinstance(node, list) else ()


def _sendable_metadata(metadata: Mapping[str, object]) -> Data:
    try:
        encoded = _encode_json(dict(metadata))
    except (ValueError, TypeError, RecursionError):
        return {}
    return json.loads(encoded) if len(encoded) <= MAX_METADATA_BYTES else {}


def _checked_pieces(pieces: Any) -> list[tuple[str, str, int]]:
    if not isinstance(pieces, dict) or len(cast("dict[str, Any]", pieces)) > MAX_TYPES:
        raise FrameError("a display does not name its media types")
    return [_checked_piece(media_type, piece) for media_type, piece in cast("dict[str, Any]", pieces).items()]


def _checked_piece(media_type: str, piece: Any) -> tuple[str, str, int]:
    match piece:
        case [str(kind), int(length)] if not isinstance(length, bool) and 0 <= length <= MAX_DISPLAY_BYTES:
            if _MEDIA_TYPE.fullmatch(media_type) and kind in _kinds(media_type):
                return media_type, kind, length
        case _:
            pass
    raise FrameError(f"a display has a part that is not in the format: {media_type[:100]!r}")


def _decode_value(kind: str, content: bytes) -> object:
    if kind == _BYTES:
        return content
    text = content.decode()
    if kind == _TEXT:
        return text
    if not is_shallow(content, MAX_DEPTH):
        raise FrameError("a display holds a value that is nested too deeply")
    value = json.loads(text)
    _strict_json(value)
    return value


def _checked_metadata(metadata: Any) -> Data:
    if not isinstance(metadata, dict):
        raise FrameError("a display's metadata is not an object")
    if len(_strict_json(cast("Data", metadata))) > MAX_METADATA_BYTES:
        raise FrameError("a display's metadata is larger than the protocol allows")
    return cast("Data", metadata)
