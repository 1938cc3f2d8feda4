"""Pictures of programs: what a browser gets has the same pixels and nothing else, and bombs are not set off."""

from __future__ import annotations

import io
import struct
import zlib

import pytest
from PIL import Image, PngImagePlugin

from fumehood.server.console.picture_size import NotAPictureError
from fumehood.server.console.pictures import read_picture

HIDDEN = b"<script>alert(1)</script>"
HEADER = struct.pack(">IIBBBBB", 2, 2, 8, 0, 0, 0, 0)
ROWS = bytes(6)
JFIF, ADOBE = b"JFIF\0\1\1\0\0\1\0\1", b"Adobe\0\x64\0\0\0\0\1"


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


def jpeg(mode: str = "L") -> bytes:
    file = io.BytesIO()
    drawn(mode).save(file, "JPEG")
    return file.getvalue()


def segment(marker: int, content: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, 2 + len(content)) + content


def begun_with(added: bytes, mode: str = "L") -> bytes:
    """A JPEG with something behind its first marker."""
    data = jpeg(mode)
    return data[:2] + added + data[2:]


def scan_of(data: bytes) -> bytes:
    """Its last scan, up to the end of the picture."""
    return data[data.index(b"\xff\xda") : -2]


def with_longer(marker: int) -> bytes:
    """A JPEG of which the segment with this marker is longer than what it says."""
    data = jpeg()
    place = data.index(bytes((0xFF, marker)))
    (size,) = struct.unpack_from(">H", data, place + 2)
    return (
        data[: place + 2]
        + struct.pack(">H", size + len(HIDDEN))
        + data[place + 4 : place + 2 + size]
        + HIDDEN
        + data[place + 2 + size :]
    )


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


@pytest.mark.parametrize(
    ("added", "kept"),
    [
        (segment(0xE0, JFIF + b"\4\2" + HIDDEN), segment(0xE0, JFIF + bytes(2))),  # with a thumbnail
        (segment(0xE0, b"JFXX\0" + HIDDEN), b""),
        (segment(0xE0, b"*/=alert(1)/*" + HIDDEN), b""),
        (segment(0xEE, ADOBE + HIDDEN), segment(0xEE, ADOBE)),
        (segment(0xEE, HIDDEN), b""),
        (segment(0xE2, b"ICC_PROFILE\0" + HIDDEN), b""),
        (segment(0xEF, HIDDEN), b""),
        (segment(0xFE, HIDDEN), b""),
    ],
)
def test_segments_of_applications_are_cut_to_what_the_picture_needs(added: bytes, kept: bytes) -> None:
    data = begun_with(added, "RGB")
    shown = read_picture(data).data
    assert shown == begun_with(kept, "RGB")
    assert Image.open(io.BytesIO(shown)).tobytes() == Image.open(io.BytesIO(data)).tobytes()


def test_what_is_transparent_is_kept_if_it_has_the_size_that_it_must_have() -> None:
    assert b"tRNS" in read_picture(small(HEADER, ROWS, (b"tRNS", b"\0\1"))).data
    assert b"tRNS" not in read_picture(small(HEADER, ROWS, (b"tRNS", HIDDEN))).data


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
        png((b"tEXt", HEADER), (b"IDAT", zlib.compress(ROWS)), (b"IEND", b"")),
        small(struct.pack(">IIBBBBB", 0, 2, 8, 0, 0, 0, 0), bytes(2)),
        jpeg().replace(
            struct.pack(">BBHBHH", 0xFF, 0xC0, 11, 8, 30, 40), struct.pack(">BBHBHH", 0xFF, 0xC0, 11, 8, 0, 40)
        ),
        small(HEADER + b"\0"),
        small(struct.pack(">IIBBBBB", 2, 2, 8, 0, 1, 0, 0)),
        small(struct.pack(">IIBBBBB", 2, 2, 8, 0, 0, 1, 0)),
        small(struct.pack(">IIBBBBB", 1, 16385, 8, 0, 0, 0, 0), bytes(2 * 16385)),
        small(struct.pack(">IIBBBBB", 16385, 1, 8, 0, 0, 0, 0), bytes(16386)),
        small(struct.pack(">IIBBBBB", 8193, 1024, 8, 0, 0, 0, 0), bytes(8194 * 1024)),
        small(struct.pack(">IIBBBBB", 2048, 2049, 16, 6, 0, 0, 0), bytes((1 + 2048 * 8) * 2049)),
        png((b"IHDR", HEADER), (b"IDAT", zlib.compress(ROWS)[:-4]), (b"IEND", b"")),  # without its end
        small()[:-1] + b"x",
        small(struct.pack(">IIBBBBB", 2, 2, 8, 3, 0, 0, 0), ROWS, (b"PLTE", bytes(4))),
        small(struct.pack(">IIBBBBB", 2, 2, 8, 3, 0, 0, 0), ROWS, (b"PLTE", bytes(771))),
        jpeg("CMYK"),
        jpeg()[:-2],
        jpeg()[:-2] + b"\xff",
        jpeg()[:-2] + jpeg()[2:],  # two pictures
        jpeg()[:2] + scan_of(jpeg()) + jpeg()[2:],  # pixels before what they are of
        jpeg()[:-2] + scan_of(jpeg()) * 100 + b"\xff\xd9",
        jpeg().replace(b"\xff\xda\x00\x08\x01", b"\xff\xda\x00\x08\x02"),
        jpeg().replace(b"\xff\xc0\x00\x0b\x08", b"\xff\xc0\x00\x0b\x0c"),
        begun_with(b"/" + segment(0xFE, HIDDEN)[1:]),
        begun_with(b"\xff\xe1\xff\xff"),
        begun_with(b"\xff\xfe\x00\x00"),
        begun_with(segment(0xDC, b"\0\2")),
        begun_with(segment(0xDD, HIDDEN)),
        begun_with(segment(0xDB, b"\x20" + bytes(192))),
        begun_with(segment(0xDB, b"\x04" + bytes(64))),
        begun_with(segment(0xC4, b"\x20" + bytes(16))),
        begun_with(segment(0xC4, b"\x04" + bytes(16))),
        begun_with(segment(0xC4, b"\0" + b"\xff" * 2 + bytes(14) + bytes(510))),
        *map(with_longer, (0xC0, 0xC4, 0xDA, 0xDB)),
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
