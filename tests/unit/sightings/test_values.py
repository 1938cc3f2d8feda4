"""A value that is known is found in every form that one call of a library gives it."""

from __future__ import annotations

import base64
import html
import json
import urllib.parse
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fumehood import UsageError
from fumehood.sightings.spans import replace_spans
from fumehood.sightings.values import Known, Seen

SECRET = "tr0ub4dor&3/Correct+Horse="
FORMS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "upper case": lambda text: "".join(each.upper() if each.isascii() else each for each in text),
    "lower case": str.lower,
    "backwards": lambda text: text[::-1],
    "one character a line": "\n".join,
    "spaced": " ".join,
    "with dashes": "-".join,
    "as a list": lambda text: str(list(text)),
    "wrapped": lambda text: f"{text[:9]}\n    {text[9:]}",
    "as two literals": lambda text: f'"{text[:9]}" + "{text[9:]}"',
    "hexadecimal": lambda text: text.encode().hex(),
    "upper hexadecimal": lambda text: text.encode().hex().upper(),
    "hexadecimal with colons": lambda text: text.encode().hex(":"),
    "escapes": lambda text: "".join(f"\\x{byte:02x}" for byte in text.encode()),
    "C bytes": lambda text: ", ".join(f"0x{byte:02X}" for byte in text.encode()),
    "every character for a URL": lambda text: "".join(f"%{byte:02X}" for byte in text.encode()),
    "numbers": lambda text: str(list(text.encode())),
    "numbers a line": lambda text: "\n".join(map(str, text.encode())),
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64 for URLs": lambda text: base64.urlsafe_b64encode(text.encode()).decode(),
    "base64 after one byte": lambda text: base64.b64encode(b"x" + text.encode() + b"yz").decode(),
    "base64 after two bytes": lambda text: base64.b64encode(b"xx" + text.encode() + b"y").decode(),
    "base64 in lines": lambda text: base64.encodebytes(text.encode() * 4).decode().strip(),
    "for a URL": lambda text: urllib.parse.quote(text, safe=""),
    "for a path": urllib.parse.quote,
    "for a form": urllib.parse.quote_plus,
    "JSON": json.dumps,
    "HTML": html.escape,
    "Python": repr,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("value", [SECRET, "hunter2hunter2", "p\u00e4ssw\u00f6rt\"with'quotes"])
def test_a_value_is_found_in_any_form(value: str, form: str) -> None:
    text = f"before {FORMS[form](value)} after"
    left = replace_spans(text, Seen(text).find(Known("secret", value)))
    assert "[secret removed]" in left
    assert left.startswith("before ")
    assert left.endswith(" after")
    for start in range(len(text) - 14):
        piece = text[start : start + 14]
        assert piece not in left or piece in "before  after" or "secret removed" in piece


@pytest.mark.parametrize("text", ["", "before after", "tr0ub4dor&", "hunter2 hunter", "a" * 1000, "0x00, 0x01", "%%%"])
def test_what_is_not_the_value_is_left_alone(text: str) -> None:
    for value in (SECRET, "hunter2hunter2"):
        assert list(Seen(text).find(Known("secret", value))) == []


@given(
    st.text(max_size=200),
    st.text("abcdefgh-_.:/+ 01", min_size=4, max_size=20).filter(lambda text: len(text.strip()) >= 4),
)
def test_a_value_anywhere_in_any_text_is_gone_afterwards(text: str, value: str) -> None:
    whole = text + value + text
    left = replace_spans(whole, Seen(whole).find(Known("x", value)))
    assert value.strip() not in left


def test_a_value_that_is_too_short_to_be_told_apart_is_refused() -> None:
    with pytest.raises(UsageError, match="fewer than 4 characters"):
        Known("pin", "123")


def test_a_value_is_not_in_its_picture() -> None:
    assert SECRET not in repr(Known("x", SECRET))
