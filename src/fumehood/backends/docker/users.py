"""The user that programs run as in a container: always one with a number, and never root. Pure but for reading files.

What an image says is text that engines read generously: `00`, `+0` and every name with number 0 are root to them. Here
a user is one that is found: a plain number above 0, or a name in the image's own list of users.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from fumehood.errors import UsageError

_NUMBER = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*", re.ASCII)
_LARGEST_ID = 2**32 - 2
_ROOT = ("0", "root")
_NOBODY_ID = 65534
_NAME_FIELD, _ID_FIELD, _GROUP_FIELD = 0, 2, 3

ReadFile = Callable[[str], Awaitable[str]]
"""The text of a file in the image."""


class ProgramUser(NamedTuple):
    uid: int
    gid: int

    def __str__(self) -> str:
        return f"{self.uid}:{self.gid}"


NOBODY = ProgramUser(_NOBODY_ID, _NOBODY_ID)


async def image_user(image: str, text: str, read: ReadFile) -> ProgramUser:
    """The user of an image that names one as `text`; uid 65534 where it names none, or root."""
    name, has_group, group = text.partition(":")
    if not text or name in _ROOT:
        return NOBODY
    uid = _number(name)
    gid = uid
    if uid is None:
        entry = _find(await read("/etc/passwd"), name)
        uid, gid = _field(entry, _ID_FIELD), _field(entry, _GROUP_FIELD)
    if has_group:
        gid = await _group(group, read)
    if not uid or gid is None:
        raise UsageError(
            f"image {image!r} runs programs as {text!r}, which is neither a number above 0 nor the name of such a user "
            "in its /etc/passwd. Make one with USER 1000, for example, or use another image."
        )
    return ProgramUser(uid, gid or _NOBODY_ID)


async def _group(group: str, read: ReadFile) -> int | None:
    if group in _ROOT:
        return 0
    number = _number(group)
    return _field(_find(await read("/etc/group"), group), _ID_FIELD) if number is None else number


def _find(table: str, name: str) -> list[str]:
    """The first line about it, in fields; the first is the one that programs see, too."""
    if _NAME.fullmatch(name) is None:
        return []
    found = (fields for line in table.splitlines() if (fields := line.split(":"))[_NAME_FIELD] == name)
    return next(found, list[str]())


def _field(fields: list[str], position: int) -> int | None:
    return _number(fields[position]) if position < len(fields) else None


def _number(text: str) -> int | None:
    return int(text) if _NUMBER.fullmatch(text) and int(text) <= _LARGEST_ID else None
