"""A canary is seen in a stream in every form in which it is seen in a text, wherever the stream is cut."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.secret_scan.test_values import DUMPS, FORMS

from fumehood.secret_scan import forms
from fumehood.secret_scan.canaries import CanaryAlert, CanaryWatch, _Track  # type: ignore[attr-defined]
from fumehood.secret_scan.values import SecretValue, Text

CANARY = "AKIA2QXZ7MWPLTREQ3VN"
VALUES = [CANARY, "tr0ub4dor&3/Correct+Horse=", "p\u00e4ssw\u00f6rt\"with'quotes", "\u20ac-Schl\u00fcssel-7731"]
ALARM = (CanaryAlert("c", "x"),)


def watch(value: str = CANARY) -> CanaryWatch:
    return CanaryWatch([SecretValue("c", value)], "x")


def bytes_one_by_one(data: bytes) -> Iterator[bytes]:
    return (data[place : place + 1] for place in range(len(data)))


def is_seen(pieces: Iterator[bytes], value: str = CANARY) -> bool:
    watching = watch(value)
    return any(watching.feed(piece) for piece in pieces)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("value", VALUES)
def test_a_canary_is_seen_in_any_form_byte_by_byte(value: str, form: str) -> None:
    written = FORMS[form](value)
    assert is_seen(iter([f"before {written}".encode()]), value)
    assert is_seen(bytes_one_by_one(f"before {written}".encode()), value)
    assert is_seen(iter([b"before ", written.encode(), b" after"]), value)


@pytest.mark.parametrize("form", DUMPS)
def test_a_canary_is_seen_in_a_dump_byte_by_byte(form: str) -> None:
    if shutil.which(DUMPS[form][0]) is None:
        pytest.skip(f"{DUMPS[form][0]} is not installed")
    made = subprocess.run(DUMPS[form], input=b"thirteen more" + CANARY.encode(), capture_output=True, check=True)
    assert is_seen(bytes_one_by_one(b"before\n" + made.stdout))


@pytest.mark.parametrize(
    "pieces",
    [
        [f"{each}{chr(10) * 60}" for each in CANARY],
        [f"{' ' * 30}{ord(each)},\n" for each in CANARY],
        [f"{ord(each):02x}{' ' * 40}" for each in CANARY],
        [f"{each}{chr(10) * 30}" for each in FORMS["base64"](CANARY)],
        [piece for each in FORMS["base64"](CANARY) for piece in (each, "\\", "n")],
        [f"&#{'0' * 40}{ord(each)};" for each in CANARY],
        [piece for each in CANARY for piece in ("&", "#" + "0" * 40, "0" * 40 + str(ord(each))[0], str(ord(each))[1:])],
        [piece for each in CANARY for piece in ("0", f"x{ord(each):02x}, ")],
        [piece for each in CANARY for piece in (f"0{ord(each)}"[:2], f"0{ord(each)}"[2:] + " " * 40)],
    ],
    ids=["lines", "numbers", "hex", "base64", "JSON base64", "entities", "cut entities", "0x", "cut numbers"],
)
def test_much_that_stands_between_the_pieces_does_not_help(pieces: list[str]) -> None:
    assert list(Text("".join(pieces)).find(SecretValue("c", CANARY)))
    assert is_seen(piece.encode() for piece in pieces)


@pytest.mark.parametrize("between", ["\0", *"=*~&#<>{}^$@!?%", "\u200b", "\u00ad", "\u2060", "\ufeff", "}{", "<=>"])
def test_any_sign_may_stand_between(between: str) -> None:
    text = between.join(CANARY)
    assert list(Text(text).find(SecretValue("c", CANARY)))
    assert is_seen(bytes_one_by_one(text.encode()))


def test_it_is_seen_before_its_last_byte_is_passed_on() -> None:
    for written in (CANARY, "".join(f"&#{ord(each)}" for each in CANARY), CANARY.encode().hex()):
        watching = watch()
        assert [watching.feed(piece) for piece in bytes_one_by_one(written.encode()[:-1])][-1] == ()
        assert watching.feed(written.encode()[-1:]) == ALARM
        assert watching.feed(written.encode()) == ()


@settings(deadline=None)
@given(st.data(), st.sampled_from(sorted(FORMS)), st.sampled_from(VALUES))
def test_where_a_stream_is_cut_makes_no_difference_to_its_watch(data: st.DataObject, form: str, value: str) -> None:
    content = f"%4 {FORMS[form](value)}".encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=5)))
    edges = [0, *cuts, len(content)]
    assert is_seen((content[start:end] for start, end in pairwise(edges)), value)


@given(st.text("0x\\n 1aF%=&#;u{}\u200b\u00e4\udcc3\ud800,", max_size=40))
def test_the_fast_way_to_read_a_form_is_the_exact_one(text: str) -> None:
    loosely, _, as_hex, _, _, as_64, _ = (form.read(text) for form in forms.ENCODED)
    assert loosely == forms.NO_WORD.sub("", forms.lowered(text))
    assert as_hex == forms.BETWEEN_HEX.sub("", forms.lowered(text))
    assert as_64 == forms.BETWEEN_64.sub("", forms.in_standard_64(text))


@pytest.mark.some_parameters
@pytest.mark.parametrize("form", forms.ENCODED)
@pytest.mark.parametrize(
    "text", ["%41", "&#", "&#x0", "\\u{0", "65, ", "a", " ", "\n", "0", "\\", "0000: 4141 4141\n", "0000: " + "ab" * 40]
)
def test_what_a_stream_costs_grows_with_its_length_alone(form: forms.Form, text: str) -> None:
    read = 0

    def count(part: str) -> str:
        nonlocal read
        read += len(part)
        return form.read(part)

    track = _Track(replace(form, read=count), [("c", "k" * 1700)])
    stream = text * (6000 // len(text))
    for each in stream:
        track.feed(each)
    kept = len(track._passed) + len(track._waiting)  # type: ignore[attr-defined]
    assert kept < 1700 + 4097
    # A line that may be one of a dump is read again until it ends; anything else about once.
    assert read < len(stream) * (4096 if form is forms.ENCODED[3] and text.endswith("ab") else 20)
