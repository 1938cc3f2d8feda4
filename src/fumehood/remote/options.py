"""What is said of a run besides its code, as a header and bytes, and back."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, cast

from fumehood.guest.contract.frames import MAX_DEPTH, FrameError, Header, is_shallow
from fumehood.sandbox.request import RunOptions

LIVE = "live"
"""In place of the size of standard input: it follows while the program runs."""


def pack_request(code: str | bytes | None, options: RunOptions) -> tuple[Header, bytes]:
    """The body is the options, then the code, then what is to be standard input. All of it was checked before."""
    source = code.encode("utf-8", "surrogatepass") if isinstance(code, str) else code
    stdin = options.get("stdin")
    data = os.fsencode(stdin) if isinstance(stdin, str) else None if isinstance(stdin, int) else stdin
    words = json.dumps({name: value for name, value in options.items() if name != "stdin"}, default=_plain).encode()
    header: Header = {
        "options": len(words),
        "code": None if source is None else len(source),
        "stdin": LIVE if isinstance(stdin, int) else None if data is None else len(data),
    }
    return header, b"".join((words, source or b"", data or b""))


def _plain(value: object) -> object:
    return dict(cast("Mapping[str, str]", value)) if isinstance(value, Mapping) else os.fspath(cast("str", value))


def unpack_request(header: Header, body: bytes) -> tuple[bytes | None, RunOptions]:
    """Which options there are is checked by the sandbox; here, that they are no more than data."""
    sizes: list[Any] = [header.get("options"), header.get("code") or 0, header.get("stdin") or 0]
    if sizes[2] == LIVE:
        sizes[2] = 0
    if any(type(size) is not int or size < 0 for size in sizes) or sum(sizes) != len(body):
        raise FrameError("a run whose body is not what its header says")
    words, rest = body[: sizes[0]], body[sizes[0] :]
    options = _read_options(words)
    if header.get("stdin") is not None and header["stdin"] != LIVE:
        options["stdin"] = rest[sizes[1] :]
    return None if header.get("code") is None else rest[: sizes[1]], cast("RunOptions", options)


def _read_options(words: bytes) -> dict[str, Any]:
    try:
        options = json.loads(words) if is_shallow(words, MAX_DEPTH) else None
    except (ValueError, RecursionError):
        options = None
    if not isinstance(options, dict) or "stdin" in options:
        raise FrameError("a run without options")
    return cast("dict[str, Any]", options)
