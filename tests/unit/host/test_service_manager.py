"""What a service manager is told, over a socket of the test's own."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from fumehood.host.service_manager import notify, watchdog_seconds


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.settimeout(30)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield receiver


def test_states_go_in_one_message(manager: socket.socket) -> None:
    notify("READY=1", "STATUS=listening")
    assert manager.recv(100) == b"READY=1\nSTATUS=listening"


def test_an_abstract_socket_is_one_too(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(f"\0hood-{os.getpid()}")
        receiver.settimeout(30)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@hood-{os.getpid()}")
        notify("STOPPING=1")
        assert receiver.recv(100) == b"STOPPING=1"


def test_without_a_manager_or_with_one_that_is_gone_nothing_happens(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("", "relative", "/nonexistent/socket"):
        monkeypatch.setenv("NOTIFY_SOCKET", place)
        notify("READY=1")
    monkeypatch.delenv("NOTIFY_SOCKET")
    notify("READY=1")


@pytest.mark.parametrize(
    ("variables", "seconds"),
    [
        ({"WATCHDOG_USEC": "60000000"}, 30.0),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_the_watchdog_is_answered_in_half_of_its_time(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], seconds: float | None
) -> None:
    for name in ("WATCHDOG_USEC", "WATCHDOG_PID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert watchdog_seconds() == seconds
