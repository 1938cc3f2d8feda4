"""Pictures that programs have made, as a browser may get them: PNG is taken apart and written anew, JPEG is checked.

Of either only what makes the picture is left: no text, no profile, nothing before or behind it that another program
could read as something else; the compressed pixels of a JPEG are as they were. What is not exactly one picture of a
bearable size is none. SVG and HTML are never pictures here: they can hold scripts. Pure.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

from fumehood.frozen import frozen
from fumehood.server.console.jpeg import jpeg_segments
from fumehood.server.console.picture_size import NotAPictureError, check_size

PICTURE_TYPES = frozenset({"image/png", "image/jpeg"})
_MOST_RAW_BYTES = 32 * 1024 * 1024
_PNG = b"\x89PNG\r\n\x1a\n"
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
"""Of each of PNG's types of colour."""
_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_PALETTE_TYPE = 3
_MOST_FILTER = 4


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
            return Picture("image/jpeg", b"".join(jpeg_segments(data)))
    except (struct.error, zlib.error, IndexError) as error:
        raise NotAPictureError("it is damaged") from error
    raise NotAPictureError("it is neither a PNG nor a JPEG")


def _rewritten_png(data: bytes) -> bytes:
    chunks = list(_png_chunks(data))
    name, header = chunks[0]
    if name != b"IHDR":
        raise NotAPictureError("its first part is missing")
    width, height, depth, colours, compression, filters, interlaced = struct.unpack(">IIBBBBB", header)
    check_size(width, height)
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
