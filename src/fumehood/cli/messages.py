"""Our own words to whoever sits in front: on standard error, one prefix, and no byte that a terminal obeys."""

from __future__ import annotations

import os
from contextlib import suppress

from fumehood.characters import neutralise


def say(text: str) -> None:
    """Names of files and words of a broken sandbox end up in messages, so they are made harmless."""
    lines = neutralise(text).rstrip("\n").split("\n")
    data = "".join(f"{'hood: ' if number == 0 else '      '}{line}\n" for number, line in enumerate(lines))
    with suppress(OSError):
        os.write(2, data.encode("utf-8", "backslashreplace"))
