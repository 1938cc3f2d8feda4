"""What is shown as a picture: how large it may be, and the error for what is none."""

from __future__ import annotations

_MOST_PIXELS = 8 * 1024 * 1024
_MOST_SIDE = 16_384


class NotAPictureError(ValueError):
    """It is not one, or not one that is shown."""


def check_size(width: int, height: int) -> None:
    if not (0 < width <= _MOST_SIDE and 0 < height <= _MOST_SIDE and width * height <= _MOST_PIXELS):
        raise NotAPictureError(f"{width} x {height} is not a size that is shown")
