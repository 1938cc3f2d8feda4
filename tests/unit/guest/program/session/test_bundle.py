"""Displays on the wire: what is sent arrives, and what is not in the format is refused."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fumehood.guest.contract import frames
from fumehood.guest.contract.bundle import (
    MAX_DEPTH,
    MAX_DISPLAY_BYTES,
    MAX_METADATA_BYTES,
    MAX_TYPES,
    decode_bundle,
    encode_bundle,
)
from fumehood.guest.contract.frames import FrameError

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=50)
SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False) | TEXT
)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=8
)
DATA = st.fixed_dictionaries(
    {},
    optional={
        "text/plain": TEXT,
        "text/html": TEXT,
        "image/svg+xml": TEXT,
        "image/png": st.binary(max_size=50),
        "application/pdf": st.binary(max_size=50),
        "application/json": JSON,
        "application/vnd.vegalite.v5+json": JSON,
        "application/x-thing": TEXT | st.binary(max_size=50),
    },
)
METADATA = st.dictionaries(TEXT, JSON, max_size=3)


def travel(data: dict[str, Any], metadata: dict[str, Any]) -> tuple[dict[str, object], dict[str, object]]:
    decoder = frames.Decoder(MAX_DISPLAY_BYTES)
    decoder.feed(frames.encode(*encode_bundle(data, metadata)))
    message = decoder.next()
    assert message is not None
    return decode_bundle(*message)


@settings(deadline=None)
@given(data=DATA, metadata=METADATA)
def test_what_is_sent_arrives(data: dict[str, Any], metadata: dict[str, Any]) -> None:
    arrived = travel(data, metadata)
    assert arrived == (data, metadata)
    assert list(arrived[0]) == list(data)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.just(object()),
    lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=6,
)


@settings(deadline=None)
@given(
    data=st.dictionaries(st.sampled_from(["text/plain", "image/png", "application/json", "x/y"]) | st.text(), ANYTHING),
    metadata=st.dictionaries(st.text() | st.integers(), ANYTHING),
)
def test_whatever_a_program_returns_can_be_sent_and_read(data: dict[str, Any], metadata: dict[str, Any]) -> None:
    arrived, details = travel(data, metadata)
    assert set(arrived) <= set(data)
    json.dumps(details, allow_nan=False).encode()


@settings(deadline=None)
@given(
    display=JSON | st.dictionaries(st.sampled_from(["text/plain", "image/png", "a/b"]) | TEXT, JSON),
    metadata=JSON,
    body=st.binary(max_size=30),
)
def test_a_hostile_message_is_read_or_refused(display: Any, metadata: Any, body: bytes) -> None:
    try:
        data, _ = decode_bundle({"display": display, "metadata": metadata}, body)
    except FrameError:
        return
    assert all(isinstance(value, (str, bytes)) for value in data.values())


@pytest.mark.parametrize(
    ("display", "metadata", "body"),
    [
        (None, {}, b""),
        ([], {}, b""),
        ({"text/plain": 1}, {}, b""),
        ({"text/plain": ["text"]}, {}, b""),
        ({"text/plain": ["text", "1"]}, {}, b"1"),
        ({"text/plain": ["text", True]}, {}, b"1"),
        ({"text/plain": ["text", -1], "text/html": ["text", 1]}, {}, b""),
        ({"text/plain": ["text", 1.0]}, {}, b"1"),
        ({"text/plain": ["text", 2]}, {}, b"1"),
        ({"text/plain": ["text", 1]}, {}, b"12"),
        ({"text/plain": ["text", 1]}, {}, b"\xff"),
        ({"text/plain": ["bytes", 1]}, {}, b"1"),
        ({"image/png": ["text", 1]}, {}, b"1"),
        ({"application/json": ["text", 1]}, {}, b"1"),
        ({"application/json": ["json", 1]}, {}, b"{"),
        ({"application/json": ["json", 3]}, {}, b"NaN"),
        ({"application/json": ["json", 5]}, {}, b"1e999"),
        ({"application/json": ["json", 8]}, {}, b'"\\ud800"'),
        ({"application/json": ["json", 100_000]}, {}, b"[" * 100_000),
        ({"application/json": ["json", 200]}, {}, b"[" * 100 + b"]" * 100),
        ({"application/json": ["json", 5000]}, {}, b"1" * 5000),
        ({"text": ["text", 1]}, {}, b"1"),
        ({"text/plain\n": ["text", 1]}, {}, b"1"),
        ({"../x/../y": ["text", 1]}, {}, b"1"),
        ({f"text/x{n}": ["text", 0] for n in range(MAX_TYPES + 1)}, {}, b""),
        ({}, None, b""),
        ({}, [], b""),
        ({}, {"x": float("inf")}, b""),
        ({}, {"x": "y" * MAX_METADATA_BYTES}, b""),
    ],
)
def test_what_does_not_keep_to_the_format_is_refused(display: Any, metadata: Any, body: bytes) -> None:
    with pytest.raises(FrameError):
        decode_bundle({"display": display, "metadata": metadata}, body)


def test_a_display_that_is_too_large_says_so_instead() -> None:
    data, _ = travel({"text/plain": "small", "image/png": b"x" * (MAX_DISPLAY_BYTES + 1)}, {})
    assert list(data) == ["text/plain"]
    assert "16.0 MiB was left out" in str(data["text/plain"])


def test_the_largest_display_is_sent_whole() -> None:
    assert travel({"image/png": b"x" * MAX_DISPLAY_BYTES}, {})[0] == {"image/png": b"x" * MAX_DISPLAY_BYTES}


def test_large_text_of_any_language_fits() -> None:
    text = "\N{SNOWMAN}" * (MAX_DISPLAY_BYTES // 3)
    assert travel({"text/html": text}, {})[0] == {"text/html": text}


def nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("media_type", "value", "expected"),
    [
        ("image/png", base64.b64encode(b"picture").decode(), b"picture"),
        ("image/png", base64.encodebytes(b"picture" * 20).decode(), b"picture" * 20),
        ("image/png", bytearray(b"picture"), b"picture"),
        ("text/plain", b"caf\xc3\xa9 \xff", "caf\N{LATIN SMALL LETTER E WITH ACUTE} \N{REPLACEMENT CHARACTER}"),
        ("text/plain", "half \ud800", "half \\ud800"),
        ("application/json", "half \ud800", "half ?"),
        ("application/json", {1: (2, 3)}, {"1": [2, 3]}),
        ("application/json", nested(MAX_DEPTH - 1), nested(MAX_DEPTH - 1)),
    ],
)
def test_values_are_sent_in_the_form_of_their_type(media_type: str, value: object, expected: object) -> None:
    assert travel({media_type: value}, {})[0] == {media_type: expected}


@pytest.mark.parametrize(
    ("media_type", "value"),
    [
        ("image/png", 5),
        ("image/png", "not base64!!"),
        ("text/plain", None),
        ("application/json", float("nan")),
        ("application/json", object()),
        ("application/json", nested(MAX_DEPTH + 1)),
        ("application/json", nested(100_000)),
        ("no type", "x"),
        ("text/plain; charset=utf-8", "x"),
    ],
)
def test_what_cannot_be_sent_is_left_out_alone(media_type: str, value: object) -> None:
    assert travel({media_type: value, "text/html": "<b>"}, {})[0] == {"text/html": "<b>"}


@pytest.mark.parametrize(
    "make", [lambda: {"x": object()}, lambda: {"x": "y" * MAX_METADATA_BYTES}, lambda: {"x": nested(100)}]
)
def test_metadata_that_cannot_be_sent_is_left_out(make: Callable[[], dict[str, object]]) -> None:
    assert travel({"text/plain": "x"}, make()) == ({"text/plain": "x"}, {})
