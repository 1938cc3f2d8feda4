"""A run's listeners, in real cells: what reaches the host through them, and that the run itself holds none."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import pytest
from unit.backends.porter import Porter

from fumehood.backends.interface import BackendSandbox, EgressEndpoint, Input
from fumehood.backends.native.backend import NativeBackend
from fumehood.egress.packet_monitor import BlockedPacket, parse_packet
from fumehood.guest.contract.limits import SHOWN_BYTES
from fumehood.policy import Policy
from fumehood.sandbox.output import record
from fumehood.sandbox.request import make_request

pytestmark = pytest.mark.anyio

PORTS = (53, 443, 8080)
TRY = """
import socket, sys
def connect(address, port):
    try:
        with socket.create_connection((address, port), 5) as line:
            return line.recv(100).decode()
    except OSError as error:
        return error.strerror
"""


@pytest.fixture
def porter() -> Iterator[Porter]:
    porter = Porter()
    yield porter
    porter.end()


@pytest.fixture(scope="module")
def backend() -> Iterator[NativeBackend]:
    backend = NativeBackend()
    yield backend
    backend.close()


@pytest.fixture
async def box(backend: NativeBackend) -> AsyncIterator[BackendSandbox]:
    async with backend.open(Policy(), None, PORTS) as opened:
        yield opened


async def run(box: BackendSandbox, code: str, porter: Porter | None, ports: tuple[int, ...] = PORTS) -> str:
    endpoint = EgressEndpoint(ports, {"WAY": "out"}, b"whom to trust", porter) if porter else None
    request = replace(make_request(Policy(), TRY + code, {}), endpoint=endpoint)
    async with box.start(request) as execution:
        taken = await record(execution)
    assert taken.stderr == b""
    return taken.stdout.decode().strip()


@pytest.mark.parametrize("address", ["127.0.0.1", "127.64.0.9", "203.0.113.7", "10.1.2.3", "169.254.169.254"])
async def test_a_connection_to_any_address_arrives_with_that_address(
    box: BackendSandbox, porter: Porter, address: str
) -> None:
    assert await run(box, f"print(connect({address!r}, 443))", porter) == f"{address}:443"


async def test_a_connection_without_a_listener_is_refused_at_once(box: BackendSandbox, porter: Porter) -> None:
    assert await run(box, "print(connect('203.0.113.7', 444))", porter) == "Connection refused"


async def test_questions_are_answered(box: BackendSandbox, porter: Porter) -> None:
    code = "line = socket.socket(type=socket.SOCK_DGRAM); line.sendto(b'?', ('127.0.0.1', 53)); print(line.recv(9))"
    assert await run(box, code, porter) == "b'echo ?'"


async def test_a_run_that_may_not_go_out_has_no_listeners(box: BackendSandbox) -> None:
    code = "print(connect('127.0.0.1', 443), open('/proc/net/tcp').read().count('\\n'))"
    assert await run(box, code, None) == "Connection refused 1"


async def test_no_process_of_the_run_holds_a_listener(box: BackendSandbox, porter: Porter) -> None:
    code = """
import os
def target(number):
    try:
        return os.readlink(f"/proc/self/fd/{number}")
    except FileNotFoundError:
        return "the folder itself"
print([target(number) for number in os.listdir("/proc/self/fd") if target(number).startswith("socket")])
"""
    assert await run(box, code, porter) == "[]"


async def test_a_program_cannot_take_the_place_of_a_listener(box: BackendSandbox, porter: Porter) -> None:
    code = """
for address in ("127.0.0.1", "127.64.0.9", "0.0.0.0"):
    with socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        line.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            line.bind((address, 8080))
            line.listen()
            print("taken")
        except OSError as error:
            print(error.strerror)
"""
    assert await run(box, code, porter) == "\n".join(["Address already in use"] * 3)


async def test_programs_talk_to_themselves_as_before(box: BackendSandbox, porter: Porter) -> None:
    code = """
with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
    server.accept()[0].sendall(b"hello")
    print(client.recv(9))
"""
    assert await run(box, code, porter) == "b'hello'"


async def test_ports_can_be_others_than_those_that_were_prepared(box: BackendSandbox, porter: Porter) -> None:
    code = "print(connect('127.0.0.1', 8080), connect('127.0.0.1', 8443))"
    assert await run(box, code, porter, (53, 8443)) == "Connection refused 127.0.0.1:8443"


async def test_more_doors_than_fit_into_one_message(box: BackendSandbox, porter: Porter) -> None:
    ports = tuple(range(20_000, 20_256))
    code = "print([port for port in range(20_000, 20_256) if connect('127.0.0.1', port) != f'127.0.0.1:{port}'])"
    assert await run(box, code, porter, ports) == "[]"


async def test_a_run_under_way_gets_more_listeners(box: BackendSandbox, porter: Porter) -> None:
    code = """
print(connect("127.0.0.1", 9000), flush=True)
sys.stdin.read()
print(connect("127.0.0.1", 9000), connect("127.0.0.1", 443))
"""
    request = make_request(Policy(), TRY + code, {})
    endpoint = EgressEndpoint(PORTS, {}, b"", porter)
    async with box.start(replace(request, endpoint=endpoint, stdin=Input.LIVE)) as execution:
        await execution.wait_for_output()
        assert execution.waiting_output()[0].data.startswith(b"Connection refused")
        box.change_ports((*PORTS, 9000))
        # The cell does what it is told in order: a second run starts when the listeners of the first are there.
        assert await run(box, "print('later')", None) == "later"
        execution.close_input()
        taken = await record(execution)
    assert taken.stdout.decode().endswith("127.0.0.1:9000 127.0.0.1:443\n")


async def test_programs_are_told_whom_to_trust_and_how_to_go_out(box: BackendSandbox, porter: Porter) -> None:
    code = """
import os
print(os.environ["WAY"], open("/run/trust.pem").read(), open("/etc/ssl/certs/ca-certificates.crt").read())
print(open("/etc/resolv.conf").read().split()[:2])
"""
    assert await run(box, code, porter) == "out whom to trust whom to trust\n['nameserver', '127.0.0.1']"


async def test_a_session_has_doors_for_its_life(box: BackendSandbox, porter: Porter) -> None:
    async with box.open_session(EgressEndpoint(PORTS, {"WAY": "out"}, b"", porter)) as session:
        for code in ("import os; print(os.environ['WAY'])", TRY, "print(connect('127.0.0.1', 443))"):
            async with session.execute(make_request(Policy(), code, {})) as execution:
                taken = await record(execution)
    assert taken.stdout == b"127.0.0.1:443\n"


async def test_what_goes_where_no_door_is_is_seen_outside(box: BackendSandbox, porter: Porter) -> None:
    code = """
def send(address, port):
    with socket.socket(type=socket.SOCK_DGRAM) as line:
        line.sendto(b"datagram", (address, port))
connect("203.0.113.7", 444)
connect("127.0.0.1", 444)
send("203.0.113.7", 53)
send("127.0.0.1", 54)
send("127.0.0.1", 53)
"""
    await run(box, code, porter)
    (monitor,) = porter.seen
    monitor.setblocking(False)
    packets = [parse_packet(monitor.recv(SHOWN_BYTES)) for _ in range(2)]
    assert packets == [BlockedPacket("connect", "203.0.113.7", 444), BlockedPacket("udp", "203.0.113.7", 53)]
    with pytest.raises(BlockingIOError):
        monitor.recv(SHOWN_BYTES)


async def test_a_port_that_the_program_has_taken_costs_it_no_other_listener(
    box: BackendSandbox, porter: Porter
) -> None:
    code = """
server = socket.create_server(("127.0.0.1", 9001))
print("taken", flush=True)
sys.stdin.read()
print(connect("127.0.0.1", 9000), connect("127.0.0.1", 9002))
"""
    request = replace(
        make_request(Policy(), TRY + code, {}), endpoint=EgressEndpoint(PORTS, {}, b"", porter), stdin=Input.LIVE
    )
    async with box.start(request) as execution:
        await execution.wait_for_output()
        box.change_ports((*PORTS, 9000, 9001, 9002))
        assert await run(box, "print('later')", None) == "later"
        execution.close_input()
        taken = await record(execution)
    assert taken.stdout.decode().endswith("127.0.0.1:9000 127.0.0.1:9002\n")
