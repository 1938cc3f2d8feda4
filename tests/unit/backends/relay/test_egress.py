"""What a container's guest says of connections is taken apart from what it may say: a hostile one gets nowhere."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from unit.backends.porter import Porter

from fumehood.backends.interface import EgressEndpoint
from fumehood.backends.relay.egress import RelayEgress
from fumehood.guest.contract.frames import FrameError
from fumehood.guest.contract.limits import MAX_DATAGRAM_BYTES, MOST_CONNECTIONS
from fumehood.guest.contract.multiplexer import Multiplexer


class Silent(Porter):
    """Keeps what it is given, and says nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.visitors: list[tuple[socket.socket, tuple[str, int]]] = []

    def serve(self, connection: socket.socket, destination: tuple[str, int]) -> None:
        self.visitors.append((connection, destination))


class Room:
    def __init__(self) -> None:
        self.sent: list[tuple[dict[str, Any], bytes]] = []
        self.channels = Multiplexer(self._send)
        self.unread_bytes = 0
        self.egress = RelayEgress(self.channels, self._send, lambda: self.unread_bytes)
        self.porter = Silent()
        self.endpoint = EgressEndpoint((53, 443), {}, b"", self.porter)

    def _send(self, header: dict[str, Any], body: bytes) -> None:
        self.sent.append((header, body))

    def connect(self, number: object = -1, to: object = ("127.64.0.1", 443)) -> None:
        self.egress.admit({"do": "connect", "channel": number, "to": to})


@pytest.fixture
def room() -> Iterator[Room]:
    room = Room()
    yield room
    room.channels.close()
    for connection, _ in room.porter.visitors:
        connection.close()
    room.porter.end()


def test_a_connection_reaches_the_visit_with_its_destination(room: Room) -> None:
    room.egress.enter(room.endpoint)
    room.connect()
    connection, destination = room.porter.visitors[0]
    assert destination == ("127.64.0.1", 443)
    connection.sendall(b"from the gateway")
    for descriptor, event in room.channels.events(1):
        room.channels.step(descriptor, event)
    assert room.sent[-1] == ({"do": "data", "channel": -1}, b"from the gateway")


def test_doors_are_open_while_somebody_may_use_them(room: Room) -> None:
    room.egress.enter(room.endpoint)
    room.egress.enter(room.endpoint)
    room.egress.leave(room.endpoint)
    assert [header for header, _ in room.sent] == [{"do": "ports", "ports": [53, 443]}]
    room.connect()
    room.egress.leave(room.endpoint)
    assert ({"do": "ports", "ports": []}, b"") in room.sent
    assert room.porter.visitors[0][0].recv(1) == b""


def test_whoever_comes_when_nobody_may_go_out_is_turned_away(room: Room) -> None:
    room.connect()
    assert room.porter.visitors == []
    assert [header["do"] for header, _ in room.sent] == ["hangup", "end"]
    room.egress.answer({"do": "ask", "number": 1}, b"?")
    assert room.sent[2:] == [({"do": "answer", "number": 1}, b"")]


def test_rules_that_change_change_the_doors_of_runs_under_way(room: Room) -> None:
    room.egress.change((53, 8443))
    assert room.sent == []
    room.egress.enter(room.endpoint)
    room.egress.change((53, 8443))
    assert room.sent[-1][0] == {"do": "ports", "ports": [53, 8443]}


@pytest.mark.parametrize(
    ("number", "to"),
    [
        (1, ("127.64.0.1", 443)),
        (0, ("127.64.0.1", 443)),
        ("-1", ("127.64.0.1", 443)),
        (-1, ("127.64.0.1", 0)),
        (-1, ("127.64.0.1", 65536)),
        (-1, ("127.64.0.1", "443")),
        (-1, ("example.com", 443)),
        (-1, ("127.64.0.1\0.example.com", 443)),
        (-1, ("::1", 443)),
        (-1, (None, 443)),
        (-1, ("127.64.0.1",)),
    ],
)
def test_a_connection_that_cannot_be_breaks_off_everything(room: Room, number: object, to: object) -> None:
    room.egress.enter(room.endpoint)
    with pytest.raises((FrameError, ValueError, TypeError)):
        room.connect(number, to)
    assert room.porter.visitors == []


def test_a_number_cannot_be_used_twice(room: Room) -> None:
    room.egress.enter(room.endpoint)
    room.connect(-5)
    with pytest.raises(FrameError):
        room.connect(-5)


def test_a_guest_cannot_open_ever_more_connections(room: Room) -> None:
    room.egress.enter(room.endpoint)
    before = len(os.listdir("/proc/self/fd"))
    for number in range(MOST_CONNECTIONS):
        room.connect(-1 - number)
    room.connect(-1 - MOST_CONNECTIONS)
    assert [header["do"] for header, _ in room.sent[-2:]] == ["hangup", "end"]
    assert len(room.porter.visitors) == MOST_CONNECTIONS
    assert len(os.listdir("/proc/self/fd")) <= before + 3 * MOST_CONNECTIONS


def test_questions_have_a_size(room: Room) -> None:
    room.egress.enter(room.endpoint)
    room.egress.answer({"do": "ask", "number": 7}, b"?")
    assert room.sent[-1] == ({"do": "answer", "number": 7}, b"echo ?")
    with pytest.raises(FrameError):
        room.egress.answer({"do": "ask", "number": 8}, bytes(MAX_DATAGRAM_BYTES + 1))


def test_a_guest_that_asks_without_listening_is_cut_off(room: Room) -> None:
    room.egress.enter(room.endpoint)
    room.unread_bytes = 1 << 30
    with pytest.raises(FrameError):
        room.connect()
    with pytest.raises(FrameError):
        room.egress.answer({"do": "ask", "number": 1}, b"?")
