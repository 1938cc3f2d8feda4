"""The segments of a JPEG that make its picture, each of exactly the form that it has to have. Pure.

A segment that is longer than what it says could hold anything, a script say, so that it is refused or cut.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

from fumehood.server.console.picture_size import NotAPictureError, check_size

_EOI, _SOS = 0xD9, 0xDA
_FRAMES = (0xC0, 0xC1, 0xC2)  # baseline, extended, progressive
_HUFFMAN_TABLES, _QUANTIZATION_TABLES, _RESTART_INTERVAL = 0xC4, 0xDB, 0xDD
_JFIF, _ADOBE = 0xE0, 0xEE  # the size of a pixel, the kind of colours
_DROPPED = (*range(0xE1, 0xEE), 0xEF, 0xFE)  # other applications' segments, comments
_MOST_SCANS = 100
_MOST_CODES = 256
_AFTER_PIXELS = re.compile(rb"\xff[^\x00\xd0-\xd7]")
"""A marker that is not part of a scan: neither a byte of pixels nor a restart."""


def jpeg_segments(data: bytes) -> Iterator[bytes]:
    """Up to the end of the picture. NotAPictureError, struct.error or IndexError for what is none."""
    yield data[:2]
    place, scans, components = 2, 0, 0
    while True:
        filler, marker = data[place], data[place + 1]
        if filler != 0xFF:
            raise NotAPictureError("it is damaged")
        if marker == 0xFF:
            place += 1
            continue
        if marker == _EOI:
            if not scans:
                raise NotAPictureError("there is no picture in it")
            yield b"\xff\xd9"
            return
        (size,) = struct.unpack_from(">H", data, place + 2)
        end = place + 2 + size  # of what is too short or cut off, no marker is there
        content = data[place + 4 : end]
        if marker in _FRAMES:
            if components:
                raise NotAPictureError("there are two pictures in it")
            components = _check_frame(content)
        if marker == _SOS:
            scans += 1
            if scans > _MOST_SCANS or not 1 <= content[0] <= components or len(content) != 4 + 2 * content[0]:
                raise NotAPictureError("its parts are not those of one picture")
            end = _scan_end(data, end)
            yield data[place:end]
        else:
            yield _segment(marker, content)
        place = end


def _segment(marker: int, content: bytes) -> bytes:
    """As it is written anew; empty if the picture does without it."""
    if marker == _JFIF:
        content = content[:12] + bytes(2) if content.startswith(b"JFIF\0") and len(content) >= 14 else b""
    elif marker == _ADOBE:
        content = content[:12] if content.startswith(b"Adobe") and len(content) >= 12 else b""
    elif marker in _DROPPED:
        content = b""
    elif marker == _QUANTIZATION_TABLES:
        _check_quantization_tables(content)
    elif marker == _HUFFMAN_TABLES:
        _check_huffman_tables(content)
    elif marker not in _FRAMES and (marker != _RESTART_INTERVAL or len(content) != 2):
        raise NotAPictureError("it is of a kind that is not shown")
    return struct.pack(">BBH", 0xFF, marker, 2 + len(content)) + content if content else b""


def _check_frame(frame: bytes) -> int:
    """How many components it has."""
    depth, height, width, components = struct.unpack_from(">BHHB", frame)
    check_size(width, height)
    if depth != 8 or components not in (1, 3) or len(frame) != 6 + 3 * components:
        raise NotAPictureError("it is of a kind that is not shown")
    return components


def _check_quantization_tables(content: bytes) -> None:
    place = 0
    while place < len(content):
        precision, number = divmod(content[place], 16)
        place += 1 + 64 * (1 + precision)
        if precision > 1 or number > 3:
            raise NotAPictureError("a table of it is damaged")
    if place != len(content):
        raise NotAPictureError("a table of it is damaged")


def _check_huffman_tables(content: bytes) -> None:
    place = 0
    while place < len(content):
        kind, number = divmod(content[place], 16)
        codes = sum(content[place + 1 : place + 17])
        place += 17 + codes
        if kind > 1 or number > 3 or codes > _MOST_CODES:
            raise NotAPictureError("a table of it is damaged")
    if place != len(content):
        raise NotAPictureError("a table of it is damaged")


def _scan_end(data: bytes, place: int) -> int:
    found = _AFTER_PIXELS.search(data, place)
    if found is None:
        raise NotAPictureError("it is cut off")
    return found.start()
