"""Pictures that programs have made, as a browser may get them: PNG is taken apart and written anew, JPEG is checked.

Of either only what makes the picture is left: no text, no profile, nothing before or behind it that another program
could read as something else. What is not exactly one picture of a bearable size is none. SVG and HTML are never
pictures here: they can hold scripts. Pure.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

from fumehood.frozen import frozen

PICTURE_TYPES = frozenset({"image/png", "image/jpeg"})
_MOST_PIXELS = 8 * 1024 * 1024
_MOST_SIDE = 16_384
_MOST_RAW_BYTES = 32 * 1024 * 1024
_PNG = b"\x89PNG\r\n\x1a\n"
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
"""Of each of PNG's types of colour."""
_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_PALETTE_TYPE = 3
_MOST_FILTER = 4
_SOI, _EOI, _SOS = 0xD8, 0xD9, 0xDA
_FRAMES = (0xC0, 0xC1, 0xC2)  # baseline, extended, progressive
_KEPT = (*_FRAMES, 0xC4, 0xDB, 0xDD, 0xE0, 0xEE)  # tables, restart interval, JFIF, Adobe's kind of colours
_DROPPED = (*range(0xE1, 0xEE), 0xEF, 0xFE)  # other applications' segments, comments
_RESTARTS = range(0xD0, 0xD8)
_MOST_SCANS = 100


class NotAPictureError(ValueError):
    """It is not one, or not one that is shown."""


@frozen
class Picture:
    media_type: str
    data: bytes


def read_picture(data: bytes) -> Picture:
    """By what it is, whatever it is called."""
    try:
        if data.startswith(_PNG):
            return Picture("image/png", _rewritten_png(data))
        if data.startswith(b"\xff\xd8"):
            return Picture("image/jpeg", b"".join(_jpeg_segments(data)))
    except (struct.error, zlib.error, IndexError) as error:
        raise NotAPictureError("it is damaged") from error
    raise NotAPictureError("it is neither a PNG nor a JPEG")


def _check_size(width: int, height: int) -> None:
    if not (0 < width <= _MOST_SIDE and 0 < height <= _MOST_SIDE and width * height <= _MOST_PIXELS):
        raise NotAPictureError(f"{width} x {height} is not a size that is shown")


def _rewritten_png(data: bytes) -> bytes:
    chunks = list(_png_chunks(data))
    if chunks[0][0] != b"IHDR" or len(chunks[0][1]) != 13 or chunks[-1][0] != b"IEND":
        raise NotAPictureError("its first or last part is missing")
    header = chunks[0][1]
    width, height, depth, colours, compression, filters, interlaced = struct.unpack(">IIBBBBB", header)
    _check_size(width, height)
    if depth not in _DEPTHS.get(colours, ()) or (compression, filters, interlaced) != (0, 0, 0):
        raise NotAPictureError("it is of a kind that is not shown")
    row_bytes = 1 + (width * depth * _CHANNELS[colours] + 7) // 8
    pixels = _inflated(b"".join(content for name, content in chunks if name == b"IDAT"), row_bytes * height)
    if max(pixels[::row_bytes]) > _MOST_FILTER:
        raise NotAPictureError("a row of it is damaged")
    written = [(b"IHDR", header), *_colours(chunks, colours), (b"IDAT", zlib.compress(pixels, 1)), (b"IEND", b"")]
    return _PNG + b"".join(_png_chunk(name, content) for name, content in written)


def _png_chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    place = len(_PNG)
    name = b""
    while name != b"IEND":
        size, name = struct.unpack_from(">I4s", data, place)
        content = data[place + 8 : place + 8 + size]
        (checksum,) = struct.unpack_from(">I", data, place + 8 + size)
        if zlib.crc32(name + content) != checksum:
            raise NotAPictureError("a part of it is damaged")
        yield name, content
        place += 12 + size


def _png_chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def _inflated(data: bytes, size: int) -> bytes:
    """Exactly so many bytes; no more than that are made of whatever there is."""
    if size > _MOST_RAW_BYTES:
        raise NotAPictureError("it is too large to be shown")
    stream = zlib.decompressobj()
    found = stream.decompress(data, size + 1)
    if len(found) != size or not stream.eof:
        raise NotAPictureError("it has not as many pixels as it says")
    return found


def _colours(chunks: list[tuple[bytes, bytes]], kind: int) -> Iterator[tuple[bytes, bytes]]:
    """Its palette and what is transparent, each of the size that it has to have."""
    palette = next((content for name, content in chunks if name == b"PLTE"), b"")
    if kind == _PALETTE_TYPE:
        if not palette or len(palette) % 3 or len(palette) > 768:
            raise NotAPictureError("its palette is damaged")
        yield b"PLTE", palette
    clear = next((content for name, content in chunks if name == b"tRNS"), None)
    sizes = {0: (2,), 2: (6,), _PALETTE_TYPE: range(1, len(palette) // 3 + 1)}
    if clear is not None and len(clear) in sizes.get(kind, ()):
        yield b"tRNS", clear


def _jpeg_segments(data: bytes) -> Iterator[bytes]:
    """What of it makes the picture, up to its end."""
    yield data[:2]
    place, scans, has_frame = 2, 0, False
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
        end = place + 2 + size
        if size < 2 or end > len(data):
            raise NotAPictureError("it is damaged")
        if marker in _FRAMES:
            if has_frame:
                raise NotAPictureError("there are two pictures in it")
            _check_frame(data[place + 4 : end])
            has_frame = True
        if marker == _SOS:
            scans += 1
            if not has_frame or scans > _MOST_SCANS:
                raise NotAPictureError("its parts are not those of one picture")
            end = _scan_end(data, end)
        elif marker not in _KEPT and marker not in _DROPPED:
            raise NotAPictureError("it is of a kind that is not shown")
        if marker not in _DROPPED:
            yield data[place:end]
        place = end


def _check_frame(frame: bytes) -> None:
    depth, height, width, components = struct.unpack_from(">BHHB", frame)
    _check_size(width, height)
    if depth != 8 or components not in (1, 3):
        raise NotAPictureError("it is of a kind that is not shown")


def _scan_end(data: bytes, place: int) -> int:
    """Where the pixels of a scan end: at the first marker that is not part of them."""
    while True:
        place = data.find(b"\xff", place)
        if place < 0:
            raise NotAPictureError("it is cut off")
        if data[place + 1] != 0 and data[place + 1] not in _RESTARTS:
            return place
        place += 2
