"""What a sandbox can do to the gateway: not much, and nothing to others."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from unit.egress.places import (
    NAME,
    Box,
    Open,
    Recorder,
    Serve,
    Upstream,
    echo,
    question,
    read_all,
    read_exactly,
    response,
    told,
)

from fumehood.egress import Gateway, SandboxEgress
from fumehood.egress.limits import MOST_KEPT_BYTES, TINY_BYTES, GatewayMemory, MemoryUsedUpError, SandboxMemory
from fumehood.errors import StepFailedError, UsageError
from fumehood.guest.contract import wire
from fumehood.policy.egress import Address
from fumehood.tenant import LOCAL, Tenant

GET = b"GET / HTTP/1.1\r\nHost: api.example.com\r\n\r\n"


@pytest.fixture
def server(upstream: Serve) -> Upstream:
    return upstream(echo)


def works(client: socket.socket) -> bool:
    try:
        client.sendall(b"x")
        return client.recv(1) == b"x"
    except OSError:
        return False


def connect(box: Box, port: int) -> socket.socket | None:
    with contextlib.suppress(ConnectionResetError):
        client = box.connect(NAME, port)
        if works(client):
            return client
    return None


def test_connections_at_a_time_are_limited_for_a_rule(server: Upstream, open_box: Open) -> None:
    box = open_box({"ports": [server.port], "max_connections": 2})
    first, second = connect(box, server.port), connect(box, server.port)
    assert first is not None
    assert second is not None
    assert connect(box, server.port) is None
    (denial,) = box.run.log.denials()
    assert denial.why == "the rule allows 2 connections at a time"
    assert denial.remedy == "raise max_connections of network.allow[0]"
    first.close()
    assert any(connect(box, server.port) is not None for _ in range(100))


def test_new_connections_a_second_are_limited_for_a_rule(server: Upstream, open_box: Open) -> None:
    box = open_box({"ports": [server.port], "max_rate": 0.001})
    assert connect(box, server.port) is not None
    assert connect(box, server.port) is None
    assert box.whys() == ["the rule allows 0.001 new connections a second"]


def test_bytes_are_limited_for_a_rule(server: Upstream, open_box: Open) -> None:
    box = open_box({"ports": [server.port], "max_bytes": 1000})
    client = box.connect(NAME, server.port)
    client.sendall(b"x" * 400)
    assert read_exactly(client, 400) == b"x" * 400
    with contextlib.suppress(OSError):
        client.sendall(b"x" * 400)
    assert len(read_all(client)) <= 200
    assert connect(box, server.port) is None
    assert box.whys() == ["the rule allows 1000B in all"]
    assert box.run.log.denials()[0].count == 2


def test_bytes_of_requests_are_limited_for_a_rule(upstream: Serve, open_box: Open) -> None:
    server = upstream(Recorder(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + b"x" * 5000))
    box = open_box({"ports": [server.port], "protocol": "http", "max_bytes": 2000})
    client = box.connect(NAME, server.port)
    client.sendall(GET)
    assert len(read_all(client)) < 2500
    assert box.whys() == ["the rule allows 2000B in all"]


@pytest.mark.parametrize("protocol", ["http", "tcp"])
def test_programs_that_do_not_read_hold_no_more_memory_together_than_the_sandbox_may(
    upstream: Serve, open_box: Open, protocol: str
) -> None:
    size = 2 * 1024 * 1024
    server = upstream(Recorder(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + bytes(size)))
    box = open_box({"ports": [server.port], "protocol": protocol}, memory_bytes=512 * 1024)
    clients: list[socket.socket] = []
    for _ in range(30):
        near, far = socket.socketpair()
        near.settimeout(20)
        box.run.serve(far, (box.address(NAME), server.port))
        near.sendall(GET)
        clients.append(near)
    held = settled(lambda: box.sandbox.memory.held_bytes)
    assert 256 * 1024 < held < 512 * 1024 + 128 * 1024 + len(clients) * TINY_BYTES
    assert {len(response(client)[2]) for client in clients} == {size}
    for client in clients:
        client.close()
    box.run.end()
    assert box.sandbox.memory.held_bytes == 0


@pytest.mark.parametrize("protocol", ["http", "tls"])
def test_unfinished_heads_count_as_memory_and_hold_no_more_than_the_sandbox_may(
    upstream: Serve, open_box: Open, protocol: str
) -> None:
    server = upstream(Recorder())
    rule = {"ports": [server.port], "protocol": protocol, "methods": ["GET"]}
    box = open_box(rule, memory_bytes=512 * 1024)
    clients: list[socket.socket] = []
    for _ in range(40):
        client = box.connect(NAME, server.port)
        clients.append(box.secure(client) if protocol == "tls" else client)
    for client in clients:
        with contextlib.suppress(OSError):
            client.sendall(GET[:-2] + b"X-Long: " + b"x" * 60_000)
    held = settled(lambda: box.sandbox.memory.held_bytes)
    assert 256 * 1024 < held < 512 * 1024 + 128 * 1024 + len(clients) * (MOST_KEPT_BYTES + TINY_BYTES)
    assert "hold all the memory that they may" in box.first_denial().why
    if protocol == "http":
        modest = box.connect(NAME, server.port)
        modest.sendall(GET)
        assert response(modest)[0] == 200
    for client in clients[::2]:
        client.close()
    box.run.end()
    assert box.sandbox.memory.held_bytes == 0
    assert box.gateway.memory.held_bytes == 0


def test_unfinished_records_and_handshakes_count_as_memory(upstream: Serve, open_box: Open) -> None:
    server = upstream(Recorder())
    box = open_box({"ports": [server.port], "protocol": "tls", "methods": ["GET"]})
    client = box.secure(box.connect(NAME, server.port))
    with socket.socket(fileno=os.dup(client.fileno())) as raw:
        raw.sendall(b"\x17\x03\x03\x40\x00" + b"x" * 10_000)
        assert settled(lambda: box.sandbox.memory.held_bytes) == 10_005
    other = box.connect(NAME, server.port)
    other.sendall(b"\x16\x03\x01\x20\x00\x01\x00\x1f\xfc" + b"x" * 3_000)
    assert settled(lambda: box.sandbox.memory.held_bytes - 10_005) == 3_009
    client.close()
    other.close()
    box.run.end()
    assert box.sandbox.memory.held_bytes == 0


def test_a_question_that_is_not_finished_counts_as_memory(server: Upstream, open_box: Open) -> None:
    box = open_box({"ports": [server.port]})
    near, far = socket.socketpair()
    with near:
        box.run.serve(far, ("127.0.0.1", 53))
        near.sendall(b"\xff\xff" + b"x" * 30_000)
        assert settled(lambda: box.sandbox.memory.held_bytes) == 30_002
    box.run.end()
    assert box.sandbox.memory.held_bytes == 0


def test_a_sandbox_that_holds_little_is_not_given_up_for_others() -> None:
    gateway = GatewayMemory(1000)
    greedy, modest = SandboxMemory(800, gateway), SandboxMemory(800, gateway)
    greedy.hold(950)
    modest.hold(90)
    modest.check_kept(MOST_KEPT_BYTES + 1)
    greedy.check_kept(MOST_KEPT_BYTES)
    with pytest.raises(MemoryUsedUpError):
        greedy.check_kept(MOST_KEPT_BYTES + 1)
    modest.hold(10)
    with pytest.raises(MemoryUsedUpError):
        modest.check_kept(MOST_KEPT_BYTES + 1)


def settled(figure: Callable[[], int]) -> int:
    """What it is when nothing moves any more."""
    seen = [-1, 0]
    until = time.monotonic() + 20
    while (len(set(seen[-5:])) > 1 or not seen[-1]) and time.monotonic() < until:
        time.sleep(0.05)
        seen.append(figure())
    return seen[-1]


def test_two_sandboxes_do_not_share_a_limit(server: Upstream, open_box: Open) -> None:
    boxes = [open_box({"ports": [server.port], "max_connections": 1}) for _ in range(2)]
    for box in boxes:
        near, far = socket.socketpair()
        near.settimeout(20)
        box.run.serve(far, (box.address(NAME), server.port))
        assert works(near)
        near.close()


def test_ten_thousand_connections_are_held_to_the_limit(server: Upstream, open_box: Open) -> None:
    box = open_box({"ports": [server.port]}, connections=50)
    kept = [connect(box, server.port) for _ in range(50)]
    assert all(client is not None for client in kept)
    address = box.address(NAME)
    refused = 0
    for _ in range(10_000):
        with socket.socket() as client:
            client.settimeout(20)
            try:
                client.connect((address, server.port))
                refused += client.recv(1) == b""
            except ConnectionResetError:
                refused += 1
    assert refused == 10_000
    assert all(client is not None and works(client) for client in kept)
    assert server.accepted == 50
    (denial,) = box.run.end()
    assert denial.count == 10_000
    assert denial.why == "the sandbox has 50 connections already, which is the most it may"


@pytest.fixture
def few_descriptors() -> Iterator[int]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = 1024  # besides what the other tests of this process have open
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, hard))
    yield few
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_sandbox_cannot_use_up_the_descriptors_of_the_application(
    few_descriptors: int, server: Upstream, open_box: Open
) -> None:
    box = open_box({"ports": [server.port]})
    opened = [connect(box, server.port) for _ in range(few_descriptors // 8 + 5)]
    assert [client is not None for client in opened] == [True] * (few_descriptors // 8) + [False] * 5
    assert box.whys() == [f"the sandbox has {few_descriptors // 8} connections already, which is the most it may"]


@pytest.mark.parametrize("protocol", ["tls", "http"])
def test_a_client_that_dribbles_is_cut_off(protocol: str, server: Upstream, open_box: Open) -> None:
    box = open_box({"ports": [server.port], "protocol": protocol}, hello_seconds=0.3)
    client = box.connect(NAME, server.port)
    start = GET if protocol == "http" else b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc"
    stopped = threading.Event()

    def dribble() -> None:
        for byte in start:
            if stopped.wait(0.05):
                return
            with contextlib.suppress(OSError):
                client.sendall(bytes([byte]))

    sender = threading.Thread(target=dribble)
    sender.start()
    assert read_all(client) == b""
    stopped.set()
    sender.join()
    assert box.sandbox.connections.count == 0 or box.run.end() == ()


def test_a_client_that_says_nothing_is_cut_off(server: Upstream, open_box: Open) -> None:
    box = open_box({"ports": [server.port], "protocol": "tls"}, hello_seconds=0.1)
    assert box.sees(NAME, server.port) == b""
    near = box.proxy()
    assert read_all(near) == b""


def test_a_connection_on_which_nothing_moves_is_ended(
    server: Upstream, open_box: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fumehood.egress.gateway.SWEEP_SECONDS", 0.05)
    box = open_box({"ports": [server.port]}, idle_seconds=0.2)
    assert box.sees(NAME, server.port) == b""
    assert box.run.end() == ()


def test_a_server_that_never_answers_is_given_up(open_box: Open) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        port = full.getsockname()[1]
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
        box = open_box({"ports": [port]}, connect_seconds=0.2)
        assert box.sees(NAME, port) == b""
        for filler in fillers:
            filler.close()
    assert box.run.end() == ()


def test_a_half_open_client_still_gets_its_answer(upstream: Serve, open_box: Open) -> None:
    def answer_at_the_end(connection: socket.socket) -> None:
        connection.sendall(b"%d" % len(read_all(connection)))

    server = upstream(answer_at_the_end)
    box = open_box({"ports": [server.port]})
    client = box.connect(NAME, server.port)
    client.sendall(b"x" * 1000)
    client.shutdown(socket.SHUT_WR)
    assert read_all(client) == b"1000"


def test_refusals_are_counted_and_not_more_than_can_be_read(open_box: Open) -> None:
    box = open_box({"ports": [443]}, denials=3)
    for name in ("a.com", "b.com", "a.com", "c.com", "d.com", "e.com"):
        box.ask(name)
    denials = box.run.end()
    assert [(denial.host, denial.count) for denial in denials[:3]] == [("a.com", 2), ("b.com", 1), ("c.com", 1)]
    assert (denials[3].what, denials[3].count) == ("others", 2)


def test_the_end_of_a_run_is_the_end_of_its_connections_only(server: Upstream, open_box: Open) -> None:
    box = open_box({"ports": [server.port]})
    ours = connect(box, server.port)
    other = box.sandbox.open_run("other")
    near, far = socket.socketpair()
    near.settimeout(20)
    other.serve(far, (box.address(NAME), server.port))
    assert works(near)
    assert box.run.end() == ()
    assert ours is not None
    assert read_all(ours) == b""
    assert works(near)
    near.close()
    refused, door = socket.socketpair()
    box.run.serve(door, (box.address(NAME), server.port))
    assert refused.recv(1) == b""
    refused.close()


def test_an_end_closes_listeners_and_sockets_for_good(server: Upstream, open_box: Open) -> None:
    box = open_box({"ports": [server.port]})
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        assert connect(box, server.port) is not None
    box.run.end()
    with pytest.raises(ConnectionRefusedError):
        box.connect(NAME, server.port)
    box.__exit__()
    assert len(os.listdir("/proc/self/fd")) <= before + 5


def test_a_change_of_policy_closes_what_it_no_longer_allows(server: Upstream, open_box: Open) -> None:
    rule = {"ports": [server.port]}
    box = open_box(rule, {**rule, "host": "b.example.com"})
    going, staying = box.connect(NAME, server.port), box.connect("b.example.com", server.port)
    assert works(going)
    assert works(staying)
    box.sandbox.change(Box.policy({**rule, "host": "b.example.com"}))
    assert read_all(going) == b""
    assert works(staying)
    assert box.ask(NAME)[0] == 3
    with contextlib.suppress(ConnectionResetError):
        assert not works(box.connect_to("127.64.0.1", server.port))
    assert box.whys() == ["no rule opens this name"] * 2
    box.sandbox.change(Box.policy(rule))
    assert connect(box, server.port) is not None
    assert read_all(staying) == b""


def test_a_change_of_policy_holds_for_the_next_request_of_an_open_connection(upstream: Serve, open_box: Open) -> None:
    server = upstream(Recorder())
    rule = {"ports": [server.port], "protocol": "http"}
    box = open_box({**rule, "methods": ["GET"]})
    client = box.connect(NAME, server.port)
    client.sendall(GET)
    assert response(client)[0] == 200
    box.sandbox.change(Box.policy({**rule, "methods": ["POST"]}))
    assert read_all(client) == b""
    client = box.connect(NAME, server.port)
    client.sendall(GET)
    assert told(client)[0] == 403


def test_a_change_that_programs_inside_could_not_follow_is_refused(server: Upstream, open_box: Open) -> None:
    box = open_box({"ports": [server.port], "protocol": "tls"})
    with pytest.raises(UsageError, match="open a new sandbox"):
        box.sandbox.change(Box.policy({"ports": [server.port], "protocol": "tls", "methods": ["GET"]}))


@pytest.mark.parametrize(
    "changed",
    [{}, {"private": False}, {"max_bytes": "1M"}, {"max_connections": 3}, {"max_rate": 0.002}, {"protocol": "tls"}],
    ids=str,
)
def test_a_change_does_not_give_back_the_rate_that_was_used(
    changed: dict[str, object], server: Upstream, open_box: Open
) -> None:
    rule = {"ports": [server.port], "max_rate": 0.001}
    box = open_box(rule)
    assert connect(box, server.port) is not None
    box.sandbox.change(Box.policy({**rule, **changed}, {"host": "other.example.com", "ports": [443]}))
    assert connect(box, server.port) is None
    assert box.whys() == [f"the rule allows {changed.get('max_rate', 0.001)} new connections a second"]


@pytest.mark.parametrize(
    "changed", [{}, {"max_rate": 9}, {"max_bytes": 101}, {"max_connections": 3}, {"ports": "more"}], ids=str
)
def test_a_change_does_not_give_back_the_bytes_that_were_used(
    changed: dict[str, object], server: Upstream, open_box: Open
) -> None:
    rule: dict[str, object] = {"ports": [server.port], "max_bytes": 100}
    box = open_box(rule)
    client = box.connect(NAME, server.port)
    client.sendall(b"x" * 50)
    assert len(read_exactly(client, 50)) == 50
    if "ports" in changed:
        changed = {"ports": [server.port, 443]}
    box.sandbox.change(Box.policy({**rule, **changed}))
    most = {**rule, **changed}["max_bytes"]
    assert connect(box, server.port) is None
    assert box.whys() == [f"the rule allows {most}B in all"]


def test_the_ports_of_a_rule_share_its_limit_and_those_of_another_rule_have_their_own(
    upstream: Serve, open_box: Open
) -> None:
    first, second, third = (upstream(echo) for _ in range(3))
    box = open_box(
        {"ports": [first.port, second.port], "max_connections": 1}, {"ports": [third.port], "max_connections": 1}
    )
    assert connect(box, first.port) is not None
    assert connect(box, second.port) is None
    assert connect(box, third.port) is not None


ACME, BOLT = (Tenant(name, Path("/unused")) for name in ("acme", "bolt"))


@pytest.mark.parametrize(
    ("tenants", "shares"),
    [((LOCAL, LOCAL, LOCAL), [4, 4, 4]), ((ACME, ACME, BOLT), [3, 3, 6])],
    ids=["of one user", "of two tenants"],
)
def test_two_greedy_sandboxes_do_not_take_all_connections_from_a_third(
    server: Upstream, open_box: Open, tenants: tuple[Tenant, ...], shares: list[int]
) -> None:
    box = open_box({"ports": [server.port]})
    box.gateway.connections.most = 12
    policy = Box.policy({"ports": [server.port]})
    sandboxes = [box.gateway.admit(policy, f"box_{index}", tenant=tenant) for index, tenant in enumerate(tenants)]

    def open_many(sandbox: SandboxEgress, count: int) -> list[socket.socket]:
        run = sandbox.open_run("run")
        opened: list[socket.socket] = []
        address, _ = sandbox.rules.names.admit(NAME, listed=True)
        for _ in range(count):
            near, far = socket.socketpair()
            near.settimeout(20)
            run.serve(far, (str(address), server.port))
            opened.append(near)
        return opened

    greedy = [client for sandbox in sandboxes[:2] for client in open_many(sandbox, 6) if works(client)]
    assert len(greedy) == 12
    modest = open_many(sandboxes[2], 7)
    assert [works(client) for client in modest] == [True] * shares[2] + [False] * (7 - shares[2])
    assert [sandbox.connections.count for sandbox in sandboxes] == shares
    assert sum(works(client) for client in greedy) == 12 - shares[2]
    for client in (*greedy, *modest):
        client.close()


def test_closing_the_gateway_closes_everything(server: Upstream, open_box: Open) -> None:
    box = open_box({"ports": [server.port]})
    client = connect(box, server.port)
    assert client is not None
    box.gateway.close()
    assert read_all(client) == b""
    with pytest.raises(OSError):
        box.connect(NAME, server.port)
    assert box.run.end() == ()
    with pytest.raises(StepFailedError, match="the way out with it"):
        box.sandbox.open_run("another")


def test_what_is_handed_to_a_closed_gateway_is_closed(server: Upstream, open_box: Open) -> None:
    box = open_box({"ports": [server.port]})
    box.gateway.close()
    ours, theirs = socket.socketpair()
    with ours:
        box.run.serve(theirs, ("127.0.0.1", server.port))
        assert ours.recv(1) == b""
    ours, theirs = socket.socketpair()
    with ours:
        with pytest.raises(StepFailedError, match="the way out with it"):
            box.run.receive_listeners(theirs)
        assert ours.recv(1) == b""


def test_a_gateway_that_hangs_lets_nothing_through(
    server: Upstream, open_box: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fumehood.egress.gateway.WAIT_SECONDS", 0.2)
    box = open_box({"ports": [server.port]})
    client = connect(box, server.port)
    assert client is not None
    hanging, released = threading.Event(), threading.Event()

    def hang() -> None:
        hanging.set()
        released.wait(20)

    box.gateway.call(hang)
    assert hanging.wait(20)
    box.run.end()
    assert read_all(client) == b""
    released.set()


def test_a_failure_of_ours_closes_one_connection(
    server: Upstream, open_box: Open, caplog: pytest.LogCaptureFixture
) -> None:
    broken = "broken.example.com"

    class Breaking(Box):
        async def _resolve(self, name: str) -> Sequence[Address]:
            if name == broken:
                raise ZeroDivisionError("secret words")
            return await super()._resolve(name)

    with Breaking({"ports": [server.port]}, {"host": broken, "ports": [server.port]}) as box:
        client = connect(box, server.port)
        assert client is not None
        assert box.sees(broken, server.port) == b""
        assert works(client)
    assert "unexpected ZeroDivisionError" in caplog.text
    assert "secret words" not in caplog.text


def test_a_gateway_without_sandboxes_has_no_thread() -> None:
    before = threading.active_count()
    gateway = Gateway()
    assert threading.active_count() == before
    gateway.close()


def test_programs_are_told_where_the_way_out_is(open_box: Open) -> None:
    box = open_box({"ports": [443, 5432]})
    assert box.sandbox.ports == (53, 443, 3128, 5432)
    environment = box.sandbox.environment("/run/ca.pem")
    assert environment["SSL_CERT_FILE"] == environment["REQUESTS_CA_BUNDLE"] == "/run/ca.pem"
    assert environment["HTTPS_PROXY"] == environment["https_proxy"] == "http://127.0.0.1:3128"
    assert b"BEGIN CERTIFICATE" in box.sandbox.trust


def test_what_was_refused_is_told_also_if_the_gateway_is_late(open_box: Open) -> None:
    """A program asks, and has ended before the busy gateway has even taken the run's listeners."""
    box = open_box({"ports": [443]})
    cells, channel = wire.socket_pair()
    asked, program = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
    with cells, asked, program:
        asked.bind(("127.0.0.1", 0))
        box.run.receive_listeners(channel)

        async def ask_and_end() -> None:
            """Without a moment in which the gateway's thread could look."""
            wire.send(cells, {"listeners": True}, (asked.fileno(),))
            program.sendto(question("other.example"), asked.getsockname())
            await box.run.close()

        box.gateway.wait(ask_and_end)
    assert [denial.what for denial in box.run.denials()] == ["dns other.example"]
