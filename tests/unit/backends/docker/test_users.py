"""Whom programs run as in an image: a user that was found, and never root."""

from __future__ import annotations

import pytest

from fumehood import UsageError
from fumehood.backends.docker.users import NOBODY, image_user

pytestmark = pytest.mark.anyio

FILES = {
    "/etc/passwd": (
        "root:x:0:0::/:/bin/sh\ntoor:x:0:0::/:/bin/sh\nodd:x:00:5::/:/bin/sh\nshort:x\nalice:x:1000:100::/:/bin/sh\n"
        "alice:x:0:0::/:/bin/sh\nrooty:x:7:0::/:/bin/sh\n+0:x:8:8::/:/bin/sh\n"
    ),
    "/etc/group": "root:x:0:\nusers:x:100:\nodd:x:-1:\n",
}


async def _read(path: str) -> str:
    return FILES[path]


@pytest.mark.parametrize(
    ("text", "user"),
    [
        *((text, NOBODY) for text in ("", "0", "root", "0:0", "root:root", "0:1000", "root:users")),
        ("1000", (1000, 1000)),
        ("1000:100", (1000, 100)),
        ("1000:users", (1000, 100)),
        ("1000:0", (1000, 65534)),
        ("1000:root", (1000, 65534)),
        ("alice", (1000, 100)),
        ("alice:7", (1000, 7)),
        ("rooty", (7, 65534)),
    ],
)
async def test_a_user_that_is_found_is_never_root(text: str, user: tuple[int, int]) -> None:
    assert await image_user("image", text, _read) == user


@pytest.mark.parametrize(
    "text",
    [
        *("00", "+0", "-0", " 0", "0 ", "0x0", "000:5", "00:00", "+1000", "01000", "4294967295", "4294967296", "1_000"),
        *("\u0660", "toor", "odd", "short", "bob", "Root", " root", "root ", ":", ":1000", "1000:", "1000:bob"),
        *("1000:odd", "1000:00", "1000:-1", "alice:1:2", "alice\n", "x" * 10_000),
    ],
)
async def test_whatever_is_not_found_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="neither a number above 0 nor the name"):
        await image_user("image", text, _read)
