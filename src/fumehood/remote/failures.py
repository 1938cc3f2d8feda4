"""Exceptions as data, and back: a caller of a remote sandbox gets what a caller of a local one gets."""

from __future__ import annotations

import inspect
from typing import cast

from fumehood import errors
from fumehood.errors import FumehoodError, SandboxError
from fumehood.guest.contract.frames import Header

_KINDS = {
    name: kind for name, kind in vars(errors).items() if inspect.isclass(kind) and issubclass(kind, FumehoodError)
}
_UNKNOWN = "the server failed; its own log has the reason"


def pack_failure(error: BaseException) -> Header:
    """Of an exception that is not ours nothing is told but that it happened: it may name what is the server's."""
    if not isinstance(error, FumehoodError):
        return {"kind": "SandboxError", "text": _UNKNOWN}
    details: Header = {
        name: value for name, value in vars(error).items() if isinstance(value, str | int | float | list | None)
    }
    return {"kind": _known_kind(type(error)), "text": str(error), "details": details}


def _known_kind(kind: type[BaseException]) -> str:
    """The nearest that both ends have."""
    return next(each.__name__ for each in kind.__mro__ if each.__name__ in _KINDS)


def unpack_failure(header: object) -> FumehoodError:
    """Of whatever the other end says that it is."""
    given = cast("Header", header) if isinstance(header, dict) else {}
    details: object = given.get("details")
    return _failure(given, cast("Header", details) if isinstance(details, dict) else {})


def _failure(header: Header, details: Header) -> FumehoodError:
    kind = _KINDS.get(str(header.get("kind")), SandboxError)
    error = kind.__new__(kind)
    Exception.__init__(error, str(header.get("text", _UNKNOWN)))
    for name, value in details.items():
        # Names of ours alone: a server that is not what it should be changes nothing else of an exception.
        if name.isidentifier() and not name.startswith("_") and not hasattr(Exception, name):
            setattr(error, name, value)
    return error
