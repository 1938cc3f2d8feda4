"""The name server of a sandbox: it asks nobody, and tells only what is allowed."""

from __future__ import annotations

import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.egress.places import NAME, TIMEOUT, Open, question, read_all, read_exactly

from fumehood.egress import dns
from fumehood.egress.dns import NameTable
from fumehood.egress.limits import GatewayLimits

NO_ERROR, FORMAT_ERROR, NO_SUCH_NAME, NOT_IMPLEMENTED, REFUSED = 0, 1, 3, 4, 5


def test_an_allowed_name_has_an_address_of_its_own_that_means_nothing_outside(open_box: Open) -> None:
    box = open_box({"ports": [443]}, {"host": "*.b.example", "ports": [443]})
    first, second = box.address(NAME), box.address("x.b.example")
    assert first != second
    assert first.startswith("127.64.")
    assert box.address("API.EXAMPLE.com") == first
    assert box.looked_up == []


@pytest.mark.parametrize("kind", [2, 5, 15, 16, 28, 33, 64, 65, 255])
def test_a_name_has_nothing_but_an_ipv4_address(kind: int, open_box: Open) -> None:
    assert open_box({"ports": [443]}).ask(NAME, kind) == (NO_ERROR, b"")


@pytest.mark.parametrize("name", ["evil.com", "example.com", "api.example.com.evil.com", "a\0.example.com", "10.0.0.1"])
@pytest.mark.parametrize("kind", [1, 28, 16])
def test_a_name_that_is_not_allowed_does_not_exist(name: str, kind: int, open_box: Open) -> None:
    box = open_box({"ports": [443]}, {"host": "*.example.com", "ports": [443]})
    assert box.ask(name, kind) == (NO_SUCH_NAME, b"")
    (denial,) = box.run.end()
    assert denial.kind == "dns"


def test_a_dot_inside_of_a_label_is_not_one_between_labels(open_box: Open) -> None:
    box = open_box({"ports": [443]}, {"host": "*.com", "ports": [443]})
    query = struct.pack(">6H", 7, 0x0100, 1, 0, 0, 0) + b"\x0bapi.example\x03com\0" + struct.pack(">HH", 1, 1)
    reply = box.run.answer(query)
    assert reply is not None
    assert reply[3] & 0xF == NO_SUCH_NAME


def test_the_address_of_a_name_is_asked_back(open_box: Open) -> None:
    box = open_box({"ports": [443]})
    box.address(NAME)
    code, data = box.ask("1.0.64.127.in-addr.arpa", 12)
    assert (code, data) == (NO_ERROR, b"\x03api\x07example\x03com\0")
    assert box.ask("1.0.0.10.in-addr.arpa", 12)[0] == NO_SUCH_NAME


def test_new_names_below_a_wildcard_are_limited(open_box: Open) -> None:
    """Each of them could carry data to whoever answers for the domain."""
    box = open_box({"host": "*.example.com", "ports": [443]}, {"ports": [443]}, new_names=3, new_names_a_second=0.0)
    codes = [box.ask(f"data{index}.example.com")[0] for index in range(5)]
    assert codes == [NO_ERROR] * 3 + [REFUSED] * 2
    assert box.ask("data0.example.com")[0] == NO_ERROR
    assert box.ask(NAME)[0] == NO_ERROR
    assert "could carry data out" in box.whys()[0]


def test_a_proxy_is_no_way_around_the_limit_of_names(open_box: Open) -> None:
    box = open_box({"host": "*.example.com", "ports": [443]}, new_names=1, new_names_a_second=0.0)
    for index, seen in ((1, False), (2, True), (3, True)):
        client = box.proxy()
        client.sendall(f"CONNECT data{index}.example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert (b" 403 " in read_all(client)) is seen
    assert box.looked_up == ["data1.example.com"]


def test_a_sandbox_uses_only_so_many_names() -> None:
    names = NameTable(GatewayLimits(names=2))
    assert [names.admit(name, listed=True)[0] is None for name in ("a.com", "b.com", "c.com", "a.com")] == [
        *(False, False, True, False)
    ]


def test_names_are_answered_over_udp_and_tcp(open_box: Open) -> None:
    box = open_box({"ports": [443]})
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(("127.0.0.1", 0))
    place = udp.getsockname()
    box.run.listen([udp])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(TIMEOUT)
        client.sendto(question(NAME), place)
        assert client.recv(512)[-4:-2] == b"\x7f\x40"
    near, far = socket.socketpair()
    near.settimeout(TIMEOUT)
    box.run.serve(far, ("127.0.0.1", 53))
    for _ in range(2):
        message = question(NAME)
        near.sendall(len(message).to_bytes(2, "big") + message)
        length = int.from_bytes(read_exactly(near, 2), "big")
        assert read_exactly(near, length)[-4:-2] == b"\x7f\x40"
    near.close()


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (b"", None),
        (b"\0", None),
        (b"\0\x07" + b"\0" * 9, FORMAT_ERROR),
        (question(NAME)[:-1], FORMAT_ERROR),
        (question(NAME) + b"x", FORMAT_ERROR),
        (question(NAME)[:2] + b"\x81\x00" + question(NAME)[4:], None),
        (question(NAME)[:2] + b"\x29\x00" + question(NAME)[4:], NOT_IMPLEMENTED),
        (question(NAME)[:4] + b"\0\x02" + question(NAME)[6:], FORMAT_ERROR),
        (question(NAME)[:12] + b"\xc0\x0c" + question(NAME)[-4:], FORMAT_ERROR),
        (question(NAME)[:-1] + b"\x03", REFUSED),
        (question("a" * 60 + "." + "b" * 60 + "." + "c" * 60 + "." + "d" * 60 + "." + "e" * 60), FORMAT_ERROR),
        (b"\0\x07" + b"x" * 600, FORMAT_ERROR),
    ],
)
def test_a_message_that_is_no_question_is_answered_briefly(message: bytes, code: int | None, open_box: Open) -> None:
    box = open_box({"ports": [443]})
    reply = box.run.answer(message)
    assert (None if reply is None else reply[3] & 0xF) == code
    assert box.run.end() == ()


@given(st.binary(max_size=80))
def test_no_bytes_break_the_parser(data: bytes) -> None:
    for message in (data, question(NAME)[:12] + data):
        try:
            query = dns.parse_query(message)
        except dns.MalformedQueryError:
            continue
        assert dns.reply(query)[:2] == message[:2]
