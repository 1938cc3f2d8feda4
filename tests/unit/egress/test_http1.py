"""What was understood of a message is what goes on: written anew, it is read in the same sandbox."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fumehood.egress.http1 import (
    Body,
    MalformedMessageError,
    forwarded,
    framing,
    parse_request,
    parse_response,
    serialise,
    value_of,
)

PIECES = st.sampled_from(
    [
        *(
            b"GET",
            b"POST",
            b" ",
            b"/",
            b"/x?y=z",
            b" HTTP/1.1",
            b" HTTP/1.0",
            b"\r\n",
            b"\r\n",
            b"\n",
            b"\r",
            b"\t",
            b"\0",
        ),
        *(b"Host: a.com", b"Content-Length: 3", b"Transfer-Encoding: chunked", b"Connection: close, x-y", b"X-Y: z"),
        *(b"content_length: 5", b": ", b":", b"X", b"\xff", b"Upgrade: websocket", b"Connection: upgrade"),
    ]
)
HEADS = st.one_of(
    st.lists(PIECES, max_size=14).map(b"".join),
    st.lists(PIECES, max_size=10).map(lambda pieces: b"GET / HTTP/1.1\r\nHost: a.com\r\n" + b"".join(pieces)),
)


@given(HEADS)
def test_what_goes_on_is_read_as_it_was_understood(head: bytes) -> None:
    try:
        request = parse_request(head)
    except MalformedMessageError:
        return
    headers = [("Host", request.host), *forwarded(request.headers, ["host"]), *framing(request.body, always=True)]
    again = serialise(f"{request.method} {request.target} HTTP/1.1", headers)
    assert again.endswith(b"\r\n\r\n")
    assert again.count(b"\r\n\r\n") == 1
    read = parse_request(again[:-4])
    assert (read.method, read.target, read.host, read.body) == (
        request.method,
        request.target,
        request.host,
        request.body,
    )
    assert forwarded(read.headers) == [("Host", request.host), *forwarded(request.headers, ["host"])]


@given(HEADS)
def test_a_message_that_is_understood_has_nothing_hidden_in_its_lines(head: bytes) -> None:
    for parse in (parse_request, lambda data: parse_response(data, "GET")):
        try:
            message = parse(head.replace(b"GET / HTTP/1.1", b"HTTP/1.1 200 OK") if parse is not parse_request else head)
        except MalformedMessageError:
            continue
        for name, value in message.headers:
            assert not set("\r\n\0") & set(name + value)
            assert " " not in name


def test_a_response_says_how_its_body_ends() -> None:
    def body(head: str, method: str = "GET") -> int | Body:
        return parse_response(head.encode(), method).body

    assert body("HTTP/1.1 200 OK") is Body.UNTIL_CLOSE
    assert body("HTTP/1.1 200 OK\r\nContent-Length: 5") == 5
    assert body("HTTP/1.1 200 OK\r\nContent-Length: 5", "HEAD") == 0
    assert body("HTTP/1.1 204") == 0
    assert body("HTTP/1.1 200 \r\nTransfer-Encoding: chunked") is Body.CHUNKED


def test_a_value_keeps_its_inner_spaces_and_loses_its_outer_ones() -> None:
    request = parse_request(b"GET / HTTP/1.1\r\nHost:a.com\r\nX:  a \t b  \r\nY:")
    assert (value_of(request.headers, "x"), value_of(request.headers, "y")) == ("a \t b", "")


LONG_HEADS = """
import resource
from fumehood.egress.http1 import MalformedMessageError, parse_request, parse_response

resource.setrlimit(resource.RLIMIT_CPU, (10, 10))
for filling in (b" ", b"\\t", b"a ", b"a", b"-", b":"):
    for end in (b"", b"\\x01", b"\\n"):
        head = b"%b\\r\\nHost: a\\r\\nA:" + filling * (60000 // len(filling)) + end
        for first in (b"GET / HTTP/1.1", b"HTTP/1.1 200"):
            try:
                parse_request(head % first) if first.startswith(b"GET") else parse_response(head % first, "GET")
            except MalformedMessageError:
                pass
"""


def test_no_head_takes_long_to_read() -> None:
    """Everybody waits while one is read; the time that a processor may spend on them is bounded by the kernel."""
    done = subprocess.run([sys.executable, "-c", LONG_HEADS], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    "line", [b"A", b":x", b"A : x", b" A: x", b"A:\x00", b"A: x\x7f", b"A: x\x0by", b"", b"A\xff: x"]
)
def test_a_header_that_is_malformed_is_refused(line: bytes) -> None:
    with pytest.raises(MalformedMessageError):
        parse_request(b"GET / HTTP/1.1\r\nHost: a\r\n" + line)
