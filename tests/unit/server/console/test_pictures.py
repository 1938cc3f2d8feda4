"""Pictures of programs: what a browser gets has the same pixels and nothing else, and bombs are not set off."""

from __future__ import annotations

import io
import struct
import zlib

import pytest
from PIL import Image, PngImagePlugin

from fumehood.server.console.pictures import NotAPictureError, read_picture

HIDDEN = b"<script>alert(1)</script>"
HEADER = struct.pack(">IIBBBBB", 2, 2, 8, 0, 0, 0, 0)
ROWS = bytes(6)


def drawn(mode: str) -> Image.Image:
    colours = bytes(place * 7 % 256 for place in range(40 * 30 * 4))
    return Image.frombytes("RGBA", (40, 30), colours).convert(mode)


def png(*chunks: tuple[bytes, bytes]) -> bytes:
    framed = (
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(framed)


def small(header: bytes = HEADER, rows: bytes = ROWS, *more: tuple[bytes, bytes]) -> bytes:
    return png((b"IHDR", header), *more, (b"IDAT", zlib.compress(rows)), (b"IEND", b""))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA"])
def test_a_png_has_the_same_pixels_and_nothing_else(mode: str) -> None:
    picture, file, notes = drawn(mode), io.BytesIO(), PngImagePlugin.PngInfo()
    notes.add_text("Comment", HIDDEN.decode())
    picture.save(file, "PNG", pnginfo=notes)
    data = file.getvalue() + HIDDEN
    shown = read_picture(data)
    assert (shown.media_type, HIDDEN in data, HIDDEN in shown.data) == ("image/png", True, False)
    assert Image.open(io.BytesIO(shown.data)).convert("RGBA").tobytes() == picture.convert("RGBA").tobytes()


@pytest.mark.parametrize("is_progressive", [False, True])
def test_a_jpeg_has_the_same_pixels_and_no_comments(is_progressive: bool) -> None:
    file = io.BytesIO()
    drawn("RGB").save(file, "JPEG", progressive=is_progressive, comment=HIDDEN, exif=b"Exif\0\0" + HIDDEN)
    data = file.getvalue() + HIDDEN
    shown = read_picture(data)
    assert (shown.media_type, data.count(HIDDEN), shown.data.count(HIDDEN)) == ("image/jpeg", 3, 0)
    assert Image.open(io.BytesIO(shown.data)).tobytes() == Image.open(io.BytesIO(data)).tobytes()


def test_the_smallest_picture_is_one() -> None:
    assert read_picture(small()).data.startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        HIDDEN,
        b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>",
        b"GIF89a" + HIDDEN,
        small()[:-4],
        small().replace(b"IDAT", b"IDOT"),
        small(struct.pack(">IIBBBBB", 2, 2, 8, 0, 0, 0, 1)),  # interlaced
        small(struct.pack(">IIBBBBB", 2, 2, 7, 0, 0, 0, 0)),
        small(struct.pack(">IIBBBBB", 2, 2, 8, 3, 0, 0, 0)),  # without its palette
        small(struct.pack(">IIBBBBB", 0, 2, 8, 0, 0, 0, 0)),
        small(rows=ROWS[:-1]),
        small(rows=ROWS + b"\0"),
        small(rows=b"\5" * 6),
        small(struct.pack(">IIBBBBB", 16384, 16384, 8, 6, 0, 0, 0)),
        small(struct.pack(">IIBBBBB", 2048, 2048, 16, 6, 0, 0, 0), bytes(1 << 20)),
        b"\xff\xd8\xff\xd9",
        b"\xff\xd8\xff\xdb\x00\x01",
        b"\xff\xd8\xff\xc0\x00\x11\x08\xff\xff\xff\xff\x03" + bytes(9),
        b"\xff\xd8\xff\xda\x00\x02\x00\xff\xd9",
        b"\xff\xd8\xff\xc3\x00\x11\x08\x00\x02\x00\x02\x03" + bytes(9),
    ],
)
def test_what_is_not_exactly_one_bearable_picture_is_none(data: bytes) -> None:
    with pytest.raises(NotAPictureError):
        read_picture(data)


def test_a_bomb_is_not_unpacked() -> None:
    """A thousand bytes for each of those that are there; no more than the picture says are made of them."""
    import tracemalloc

    bomb = small(HEADER, bytes(64 << 20))
    tracemalloc.start()
    with pytest.raises(NotAPictureError):
        read_picture(bomb)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1 << 20
