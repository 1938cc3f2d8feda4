"""What the probe answers about one mechanism of the kernel."""

from __future__ import annotations

from typing import TypedDict


class ProbeAnswer(TypedDict, total=False):
    """Either a value or an error; `errno` is 0 for one that no system call gave."""

    value: int
    errno: int
    error: str
