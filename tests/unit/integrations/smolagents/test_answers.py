"""Reading final answers: whatever SafeSerializer writes comes back, and nothing that it would not write does harm."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
import PIL.Image
import pytest
from smolagents.serialization import SafeSerializer

from fumehood import UsageError
from fumehood.integrations.smolagents.answers import read_answer


@dataclass
class Point:
    x: int


def image_bytes(kind: str, size: tuple[int, int] = (2, 2)) -> str:
    written = BytesIO()
    PIL.Image.new("1", size).save(written, format=kind)
    return base64.b64encode(written.getvalue()).decode()


def forged(kind: str, **parts: Any) -> str:
    return "safe:" + json.dumps({"__type__": kind, **parts})


def test_every_type_that_the_serializer_knows_can_be_read() -> None:
    """If a new version of smolagents has more, this fails."""
    source = SafeSerializer.get_deserializer_code(False)
    known = set(source.split('obj_type == "')[1:])
    names = {part.partition('"')[0] for part in known}
    from fumehood.integrations.smolagents import answers

    assert names == set(answers._READERS)  # pyright: ignore[reportPrivateUsage]


def test_images_and_arrays_come_back() -> None:
    image = PIL.Image.new("RGB", (3, 2), "red")
    read: Any = read_answer(SafeSerializer.dumps([image, np.eye(2, dtype="float32"), np.int64(7), Point(1)]))
    assert (read[0].size, read[0].getpixel((0, 0))) == ((3, 2), (255, 0, 0))
    assert (read[1].dtype, read[1].tolist()) == ("float32", [[1, 0], [0, 1]])
    assert read[2] == 7
    assert (read[3]["__dataclass__"], read[3]["x"]) == ("Point", 1)


@pytest.mark.parametrize("dtype", ["S2000000000", "V2000000000", "object", "<U500000000", "datetime64[ns]"])
def test_the_type_of_an_array_reserves_no_memory(dtype: str) -> None:
    assert read_answer(forged("ndarray", data=["x"], dtype=dtype)) == ["x"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "safe:",
        "pickle:gASVBQAAAAAAAABLAS4=",
        "gASVBQAAAAAAAABLAS4=",
        "safe:" + "[" * 100_000,
        forged("PIL.Image", data=image_bytes("BMP")),
        forged("PIL.Image", data=image_bytes("GIF")),
        forged("PIL.Image", data=base64.b64encode(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n").decode()),
        forged("PIL.Image", data=image_bytes("PNG", (9000, 9000))),
        forged("set", data=[[]]),
        forged("tuple"),
        forged("timedelta", total_seconds=1e300),
        forged("complex", real="1", imag=[]),
        forged("date", data=5),
        forged("dataclass", data=[], class_name="", module=""),
    ],
    ids=lambda text: text[:60],
)
def test_what_the_serializer_would_not_write_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="the final answer cannot be read"):
        read_answer(text)
