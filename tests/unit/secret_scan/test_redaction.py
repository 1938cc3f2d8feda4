"""Values of secrets are removed from text and bytes in every encoding that a header or a program has them in."""

from __future__ import annotations

import pytest

from fumehood.secret_scan.redaction import Redaction, encodings

VALUE = "pässwört-9f3aÿ"


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
@pytest.mark.parametrize("written", [VALUE, VALUE.lower(), VALUE.title()])
def test_bytes_of_a_value_are_removed_in_both_encodings(encoding: str, written: str) -> None:
    redaction = Redaction.of([VALUE])
    assert redaction.data(b"<" + written.encode(encoding) + b">") == b"<[redacted]>"


@pytest.mark.parametrize("sent", ["utf-8", "latin-1"])
@pytest.mark.parametrize(
    "read", [("utf-8", "surrogateescape"), ("utf-8", "backslashreplace"), ("utf-8", "replace"), ("latin-1", "strict")]
)
def test_text_of_a_value_is_removed_whatever_its_bytes_were_taken_for(sent: str, read: tuple[str, str]) -> None:
    text = VALUE.encode(sent).decode(*read)
    assert Redaction.of([VALUE]).text(f"<{text}>") == "<[redacted]>"


@pytest.mark.parametrize("value", [VALUE, "пароль-1234", "plain-value"])
def test_a_value_has_the_encodings_that_have_all_its_characters(value: str) -> None:
    found = set(encodings(value))
    assert value.encode() in found
    assert (value.encode("latin-1", "replace") in found) == (value != "пароль-1234")
    assert len(encodings("plain-value")) == 1


def test_signs_for_bytes_that_are_lost_are_not_taken_for_a_value() -> None:
    assert Redaction.of(["éé"]).text("\ufffd\ufffd, éé") == "\ufffd\ufffd, [redacted]"


def test_a_value_that_no_encoding_has_is_removed_from_text() -> None:
    assert Redaction.of(["half-\ud800"]).text("<half-\ud800>") == "<[redacted]>"


def test_values_that_are_added_are_removed_and_those_before_still_are() -> None:
    redaction = Redaction.of(["first-value"])
    redaction.add(["second-value", "first-value-and-more"])
    assert redaction.text("second-value, first-value, first-value-and-more") == ", ".join(["[redacted]"] * 3)
    assert redaction.data(b"second-value, first-value") == b"[redacted], [redacted]"
    assert redaction.values == ("first-value-and-more", "second-value", "first-value")
