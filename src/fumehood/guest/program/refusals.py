"""The reason why a process could not become a program, which it writes to its supervisor before it exits.

A program may run between the word and its reader, so nothing is assumed: reading does not wait, takes no descriptor,
and a word of another form is none.
"""

from __future__ import annotations

import json
import socket
from typing import Any, cast

_MAX_BYTES = 64 * 1024
_MAX_CHARACTERS = 4096
_FORMS = ({"refused"}, {"failed", "detail"})


def read_refusal(channel: socket.socket) -> dict[str, str] | None:
    """`{"refused": why}`, or `{"failed": step, "detail": why}`."""
    try:
        return parse_refusal(channel.recv(_MAX_BYTES, socket.MSG_DONTWAIT))
    except OSError:
        return None


def parse_refusal(data: bytes) -> dict[str, str] | None:
    try:
        word: Any = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(word, dict) or set(cast("dict[str, Any]", word)) not in _FORMS:
        return None
    return {name: str(text)[:_MAX_CHARACTERS] for name, text in cast("dict[str, Any]", word).items()}
