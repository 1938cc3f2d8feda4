"""Sizes and durations, as people write them and as they are shown."""

from __future__ import annotations

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fumehood.policy import format_duration, format_size, parse_duration, parse_size
from fumehood.policy.quantities import MAX_SECONDS, MAX_SIZE, MIN_SECONDS


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("256M", 268435456),
        ("256MiB", 268435456),
        ("256MB", 268435456),
        ("256 m", 268435456),
        ("64K", 65536),
        ("1.5G", 1610612736),
        ("2T", 2 * 1024**4),
        ("100B", 100),
        ("100", 100),
        (100, 100),
    ],
)
def test_a_size_is_binary_multiples_of_bytes(text: object, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize(
    "value",
    [
        *(0, -1, "0", "0M", "-1M", "1.5", "0.3K", 1.5, 1024.0, math.nan, math.inf, True, None, "", " ", "M", "1X"),
        *(
            "1KM",
            "1e3",
            "1_000",
            "\u0663M",
            "1M\n",
            "9" * 20,
            "9" * 50,
            "1.00000000000000000001G",
            "1025T",
            MAX_SIZE + 1,
            [1],
        ),
        *(pytest.param(10**5000, id="huge number"), pytest.param("9" * 5000, id="long text")),
    ],
)
def test_what_is_not_a_size_is_refused_with_what_is(value: object) -> None:
    with pytest.raises(ValueError, match=r"a size is a whole number of bytes from 1 to 1024T"):
        parse_size(value)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30.0), ("500ms", 0.5), ("2m", 120.0), ("1h", 3600.0), ("1.5 s", 1.5), ("30", 30.0), (2.5, 2.5), (3, 3.0)],
)
def test_a_duration_is_seconds(text: object, seconds: float) -> None:
    assert parse_duration(text) == seconds
    assert type(parse_duration(text)) is float


@pytest.mark.parametrize(
    "value",
    [
        *(0, -1, "0s", "-1s", 0.0001, "0.1ms", math.nan, math.inf, -math.inf, True, None, "", "s", "1d", "1e3s"),
        *("1s1m", "721h", MAX_SECONDS + 1, [1], {}),
        *(pytest.param(10**5000, id="huge number"), pytest.param("9" * 5000, id="long text")),
    ],
)
def test_what_is_not_a_duration_is_refused_with_what_is(value: object) -> None:
    with pytest.raises(ValueError, match=r"a duration goes from 1ms to 720h"):
        parse_duration(value)


@given(st.integers(1, MAX_SIZE))
def test_a_shown_size_reads_back_as_itself(size_bytes: int) -> None:
    assert parse_size(format_size(size_bytes)) == size_bytes


def test_nothing_is_shown_in_the_smallest_unit() -> None:
    assert format_size(0) == "0B"


@given(st.floats(MIN_SECONDS, MAX_SECONDS))
def test_a_shown_duration_reads_back_as_itself(seconds: float) -> None:
    assert parse_duration(format_duration(seconds)) == seconds


@given(st.integers(1, 1023), st.sampled_from("KMGT"))
def test_a_size_is_shown_as_it_is_written(number: int, suffix: str) -> None:
    assert format_size(parse_size(f"{number}{suffix}")) == f"{number}{suffix}"


@pytest.mark.parametrize("text", ["500ms", "1ms", "1s", "1.5s", "45s", "2m", "90s", "1h", "720h"])
def test_a_duration_is_shown_as_it_is_written(text: str) -> None:
    assert format_duration(parse_duration(text)) == text


@given(st.text() | st.from_regex(r"[0-9]{1,5}(\.[0-9]{1,5})? ?[a-zA-Z]{0,3}", fullmatch=True))
def test_any_text_is_a_quantity_in_range_or_refused(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert 1 <= parse_size(text) <= MAX_SIZE
    with contextlib.suppress(ValueError):
        assert MIN_SECONDS <= parse_duration(text) <= MAX_SECONDS
