"""A value that is known is found in every form that one call of a library gives it."""

from __future__ import annotations

import base64
import html
import json
import shutil
import subprocess
import urllib.parse
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fumehood import UsageError
from fumehood.secret_scan.values import SecretValue, Text, replace_spans

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
    "every character for JSON": lambda text: "".join(f"\\u{ord(each):04x}" for each in text),
    "every character for JSON in JSON": lambda text: "".join(f"\\\\u{ord(each):04X}" for each in text),
    "every other character for JSON": lambda text: "".join(
        f"\\u{ord(each):04x}" if number % 2 else each for number, each in enumerate(text)
    ),
    "JavaScript": lambda text: "".join(f"\\u{{{ord(each):x}}}" for each in text),
    "eight digits": lambda text: "".join(f"\\U{ord(each):08x}" for each in text),
    "HTML numbers": lambda text: "".join(f"&#{ord(each)};" for each in text),
    "HTML numbers with noughts": lambda text: "".join(f"&#{ord(each):07};" for each in text),
    "HTML hexadecimal": lambda text: "".join(f"&#x{ord(each):X};" for each in text),
    "octal": lambda text: "".join(f"\\{byte:03o}" for byte in text.encode()),
    "octal for printf": lambda text: "".join(f"\\0{byte:03o}" for byte in text.encode()),
    "quoted-printable": lambda text: "".join(f"={byte:02X}" for byte in text.encode()),
    "one character for a URL": lambda text: text[:5] + "".join(f"%{byte:02x}" for byte in text[5].encode()) + text[6:],
}
DUMPS = {
    "xxd": ["xxd"],
    "xxd in capitals": ["xxd", "-u"],
    "xxd by the byte": ["xxd", "-g", "1"],
    "xxd in narrow lines": ["xxd", "-c", "8"],
    "xxd in one group": ["xxd", "-g", "0"],
    "xxd plain": ["xxd", "-p"],
    "xxd for C": ["xxd", "-i"],
    "hexdump": ["hexdump", "-C"],
    "od": ["od", "-An", "-tx1"],
    "od with offsets": ["od", "-tx1z"],
}


@pytest.mark.parametrize("form", DUMPS)
@pytest.mark.parametrize("before", [b"", b"x", b"0123456789abc"], ids=["alone", "after one", "after thirteen"])
def test_a_value_is_found_in_a_dump(form: str, before: bytes) -> None:
    if shutil.which(DUMPS[form][0]) is None:
        pytest.skip(f"{DUMPS[form][0]} is not installed")
    made = subprocess.run(DUMPS[form], input=before + SECRET.encode() + b"\n", capture_output=True, check=True)
    text = f"before\n{made.stdout.decode()}after\n"
    left = replace_spans(text, Text(text).find(SecretValue("secret", SECRET)))
    assert "[secret removed]" in left
    assert (left.startswith("before\n"), left.endswith("after\n")) == (True, True)
    assert SECRET[-6:] not in left


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("value", [SECRET, "hunter2hunter2", "p\u00e4ssw\u00f6rt\"with'quotes"])
def test_a_value_is_found_in_any_form(value: str, form: str) -> None:
    text = f"before {FORMS[form](value)} after"
    left = replace_spans(text, Text(text).find(SecretValue("secret", value)))
    assert "[secret removed]" in left
    assert left.startswith("before ")
    assert left.endswith(" after")
    for start in range(len(text) - 14):
        piece = text[start : start + 14]
        assert piece not in left or piece in "before  after" or "secret removed" in piece


@pytest.mark.parametrize("text", ["", "before after", "tr0ub4dor&", "hunter2 hunter", "a" * 1000, "0x00, 0x01", "%%%"])
def test_what_is_not_the_value_is_left_alone(text: str) -> None:
    for value in (SECRET, "hunter2hunter2"):
        assert list(Text(text).find(SecretValue("secret", value))) == []


@given(
    st.text(max_size=200),
    st.text("abcdefgh-_.:/+ 01", min_size=4, max_size=20).filter(lambda text: len(text.strip()) >= 4),
)
def test_a_value_anywhere_in_any_text_is_gone_afterwards(text: str, value: str) -> None:
    whole = text + value + text
    left = replace_spans(whole, Text(whole).find(SecretValue("x", value)))
    assert value.strip() not in left


@pytest.mark.parametrize(
    "text", ["\ud800 \\x41", "\\ud800\\udfff", "\udcff%ff", "&#1114112; &#9999999;", "\\u{110000}", "\\777"]
)
def test_escapes_that_mean_nothing_hide_nothing(text: str) -> None:
    whole = f"{text}\\u0063orrect-horse{text}"
    assert replace_spans(whole, Text(whole).find(SecretValue("x", "correct-horse"))) == f"{text}[x removed]{text}"


def test_a_value_that_is_too_short_to_be_told_apart_is_refused() -> None:
    with pytest.raises(UsageError, match="fewer than 4 characters"):
        SecretValue("pin", "123")


def test_a_value_is_not_in_its_picture() -> None:
    assert SECRET not in repr(SecretValue("x", SECRET))
