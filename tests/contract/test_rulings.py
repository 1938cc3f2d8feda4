"""What a policy says to an attempt is what a sandbox does with it: `hood policy test` and `--live` agree."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fumehood import Policy
from fumehood.cli.policy.tests.live import try_live
from fumehood.policy.decisions import run_tests

ATTEMPTS = [
    *("connect: 'example.com:443'", "connect: '169.254.169.254:80'", "connect: '127.0.0.1:22'", "connect: '[::1]:443'"),
    *("http: GET http://169.254.169.254/latest/", "http: POST https://example.com/x"),
    *("read: /data", "read: /data/there", "write: /data/there", "write: /data/new", "write: /data"),
    *("write: /out/here/there", "write: /out/here/new", "write: /out/here/new/deeper", "write: /out/beside"),
    *("read: /etc/passwd", "write: /etc/passwd", "read: /etc/shadow", "read: /etc/hosts", "write: /etc/new"),
    *("read: /root/.ssh/id_ed25519", "read: /var/run/docker.sock", "read: /", "write: /", "write: /new"),
    *("read: new", "write: new", "write: new/deeper", "read: /tmp/new", "write: /tmp/new", "write: /dev/shm/new"),
    *("write: /var/tmp/new", "read: /etc/os-release", "write: /etc/os-release"),
    *("read: /usr/bin/env", "write: /usr/bin/env", "write: /usr/new", "read: /bin/sh", "write: /bin/sh"),
    *(
        "read: /dev/null",
        "write: /dev/null",
        "read: /dev/urandom",
        "read: /dev/sda",
        "read: /dev/mem",
        "write: /dev/new",
    ),
    *("read: /proc/self/status", "read: /proc/kcore"),
    *("read: /proc/kallsyms", "write: /proc/sysrq-trigger", "read: /sys/kernel/vmcoreinfo"),
]
AMOUNTS = {
    "memory": ("128M", "512M"),
    "disk": ("16M", "17M"),
    "processes": ("12", "32"),
    "open_files": ("64", "65"),
    "output": ("64K", "65537"),
}


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """One to read and one to write, for a sandbox's user who may be a stranger to both."""
    shown, writable = tmp_path / "shown", tmp_path / "writable"
    for folder, mode in ((shown, 0o755), (writable, 0o777)):
        folder.mkdir()
        folder.chmod(mode)
        (folder / "there").write_text("as it was")
        (folder / "there").chmod(mode & 0o666)
    tmp_path.chmod(0o755)
    return shown, writable


def section(folders: tuple[Path, Path]) -> dict[str, object]:
    shown, writable = folders
    return {"mounts": [{"source": shown, "target": "/data"}, {"source": writable, "target": "/out/here", "mode": "rw"}]}


def expecting_nothing(attempts: list[str]) -> list[dict[str, str]]:
    """What is expected is no matter here, only what is said and what is done."""
    pairs = (attempt.partition(": ") for attempt in attempts)
    return [{kind: target.strip("'"), "expect": "deny"} for kind, _, target in pairs]


def disagreements(policy: Policy) -> list[str]:
    results = list(run_tests(policy))
    seen = try_live(policy, results)
    assert set(seen) == set(range(len(results)))
    return [
        f"{result.decision.attempt}: said {result.decision.verdict}, did {seen[result.index]}"
        for result in results
        if seen[result.index].verdict != result.decision.verdict
    ]


def test_a_sandbox_does_what_the_policy_says_of_files_and_connections(
    make_policy: Callable[..., Policy], folders: tuple[Path, Path]
) -> None:
    policy = make_policy(filesystem=section(folders), tests=expecting_nothing(ATTEMPTS))
    assert disagreements(policy) == []


def test_nothing_of_a_process_is_written_in_proc_and_the_policy_says_so(make_policy: Callable[..., Policy]) -> None:
    attempts = ["write: /proc/self/comm", "write: /proc/self/oom_score_adj"]
    policy = make_policy(tests=expecting_nothing(attempts))
    assert disagreements(policy) == []
    assert {result.decision.verdict for result in run_tests(policy)} == {"deny"}


def test_a_sandbox_gives_as_much_as_the_policy_says(make_policy: Callable[..., Policy]) -> None:
    limits = {name: int(most) if most.isdigit() else most for name, (most, _) in AMOUNTS.items()}
    attempts = [f"resource: {name}={amount}" for name, amounts in AMOUNTS.items() for amount in amounts]
    assert disagreements(make_policy(resources=limits, tests=expecting_nothing(attempts))) == []


def test_trying_changes_nothing_of_the_hosts(make_policy: Callable[..., Policy], folders: tuple[Path, Path]) -> None:
    before = [(path, path.stat()) for folder in folders for path in (folder, folder / "there")]
    policy = make_policy(filesystem=section(folders), tests=expecting_nothing([a for a in ATTEMPTS if "/out/" in a]))
    try_live(policy, list(run_tests(policy)))
    assert [list(folder.iterdir()) for folder in folders] == [[folder / "there"] for folder in folders]
    for path, then in before:
        assert (path.stat().st_mode, path.stat().st_size) == (then.st_mode, then.st_size)
    assert (folders[1] / "there").stat().st_mtime_ns == before[3][1].st_mtime_ns


@pytest.mark.one_container
def test_what_is_done_is_seen_and_not_only_said_again(
    make_policy: Callable[..., Policy], folders: tuple[Path, Path]
) -> None:
    """A sandbox that is open where the policy is closed shows, and the other way round."""
    tests = expecting_nothing(["read: /data/there", "write: /out/here/new", "resource: processes=30"])
    closed = make_policy(resources={"processes": 12}, tests=tests)
    open_ = make_policy(filesystem=section(folders))
    verdicts = [seen.verdict for _, seen in sorted(try_live(open_, list(run_tests(closed))).items())]
    assert verdicts == ["allow"] * 3
    verdicts = [
        seen.verdict for _, seen in sorted(try_live(closed, list(run_tests(open_.override({"tests": tests})))).items())
    ]
    assert verdicts == ["deny"] * 3


@pytest.mark.one_container
def test_a_command_that_is_to_be_refused_is_and_no_other_is_run(make_policy: Callable[..., Policy]) -> None:
    attempts = {
        "command: git -C /x push": "deny",
        "command: ls; touch /workspace/ran": "deny",
        "command: ls": None,
    }
    policy = make_policy(
        commands={"allow": ["ls", "git"], "deny": ["git push"]}, tests=expecting_nothing(list(attempts))
    )
    seen = try_live(policy, list(run_tests(policy)))
    assert {name: seen[index].verdict for index, name in enumerate(attempts)} == attempts


class Listener:
    """A server on the host that counts who comes."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.socket.setblocking(False)
        self.port = self.socket.getsockname()[1]

    def had_a_visitor(self) -> bool:
        try:
            self.socket.accept()[0].close()
        except BlockingIOError:
            return False
        return True


@pytest.fixture
def listener() -> Iterator[Listener]:
    found = Listener()
    with found.socket:
        yield found


def test_connections_and_requests_are_tried_without_reaching_anybody(
    make_policy: Callable[..., Policy], listener: Listener
) -> None:
    port = listener.port
    rules = [
        {
            "host": "localhost",
            "ports": [port],
            "protocol": "http",
            "methods": ["GET"],
            "paths": ["/a/**"],
            "private": True,
        },
        {"host": "*.example.com", "ports": [443], "methods": ["GET"], "paths": ["/a/**"]},
        {"host": "passed.example.org", "ports": [443]},
    ]
    attempts = {
        f"connect: 'localhost:{port}'": "allow",
        f"http: POST http://localhost:{port}/a/x": "deny",
        f"http: GET http://localhost:{port}/b": "deny",
        f"http: GET http://localhost:{port}/a/../b": "deny",
        f"http: GET http://localhost:{port}/a/x": None,
        "connect: 'www.example.com:443'": "allow",
        "connect: 'www.example.com:22'": "deny",
        "connect: 'example.com:443'": "deny",
        "connect: '192.0.2.7:443'": "deny",
        "http: PUT https://www.example.com/a/x": "deny",
        "http: GET https://www.example.com/a/%2e%2e/b": "deny",
        "http: GET https://www.example.com/a/x": None,
        "http: GET http://passed.example.org:443/": None,
        "http: GET https://evil.example.net/": "deny",
    }
    policy = make_policy(network={"allow": rules}, tests=expecting_nothing(list(attempts)))
    seen = try_live(policy, list(run_tests(policy)))
    assert {name: seen[index].verdict for index, name in enumerate(attempts)} == attempts
    assert not listener.had_a_visitor()
