"""What is said of a run besides its code, as a header and bytes, and back."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, cast

from fumehood.errors import UsageError
from fumehood.guest.contract.frames import FrameError, Header
from fumehood.sandbox.request import RunOptions

_PLAIN = frozenset({"language", "name", "timeout"})
_WORDS = frozenset({"argv", "args"})


def pack_request(code: str | bytes | None, options: RunOptions) -> tuple[Header, bytes]:
    """The code comes first in the body, what is to be its standard input after it."""
    source = code.encode("utf-8", "surrogatepass") if isinstance(code, str) else code
    stdin = options.get("stdin")
    if isinstance(stdin, int):
        raise UsageError("stdin of a remote run is data; for a descriptor use `start` and write to it")
    data = os.fsencode(stdin) if isinstance(stdin, str) else stdin
    header: Header = {
        "code": None if source is None else len(source),
        "stdin": None if data is None else len(data),
        "options": {name: _plain(name, value) for name, value in options.items() if name != "stdin"},
    }
    return header, (source or b"") + (data or b"")


def _plain(name: str, value: object) -> object:
    if name in _WORDS and value is not None:
        return [os.fspath(word) for word in cast("Sequence[str | os.PathLike[str]]", value)]
    if name == "cwd":
        return os.fspath(cast("str", value))
    if name == "env" and isinstance(value, Mapping):
        return dict(cast("Mapping[str, str]", value))
    return value


def unpack_request(header: Header, body: bytes) -> tuple[bytes | None, RunOptions]:
    """Which options there are is checked by the sandbox; here, that they are no more than data."""
    code, stdin, options = header.get("code"), header.get("stdin"), header.get("options")
    if not isinstance(options, dict) or "stdin" in options:
        raise FrameError("a run without options")
    sizes = [0 if size is None else size for size in (code, stdin)]
    if any(type(size) is not int or size < 0 for size in sizes) or sum(sizes) != len(body):
        raise FrameError("a run whose body is not what its header says")
    given = cast("dict[str, Any]", options)
    if stdin is not None:
        given["stdin"] = body[sizes[0] :]
    return None if code is None else body[: sizes[0]], cast("RunOptions", given)
