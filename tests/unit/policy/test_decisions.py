"""What a policy says to one attempt, which key of it decided, and what would change that."""

from __future__ import annotations

import re
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fumehood import Policy, UsageError
from fumehood.policy.attempts import AttemptKind, Expectation
from fumehood.policy.decision import Decision
from fumehood.policy.decisions import Judge, parse_attempt

MOUNTS = [{"source": "/srv/data", "target": "/data"}, {"source": "/srv/out", "target": "/a/out", "mode": "rw"}]
RULES = [
    {"host": "api.example.com", "ports": [443], "methods": ["GET"], "paths": ["/repos/**"]},
    {"host": "*.example.org", "ports": [443, 8080]},
    {"host": "10.0.0.0/8", "ports": [5432], "private": True},
    {"host": "plain.example.com", "ports": [80]},
    {"host": "raw.example.com", "ports": [443], "protocol": "tcp"},
]
POLICY = Policy(
    filesystem={"mounts": MOUNTS},
    network={"allow": RULES},
    resources={"memory": "64M", "timeout": "10s", "cpus": 2, "cpu_time": "15s"},
    commands={"allow": ["ls", "git"], "deny": ["git push"]},
)


def ask(attempt: str, policy: Policy = POLICY) -> Decision[str]:
    found = parse_attempt(attempt)
    return Judge(policy).decide(found.kind, found.target)


@pytest.mark.parametrize(
    ("attempt", "rule"),
    [
        ("connect api.example.com:443", "network.allow[0]"),
        ("connect API.Example.COM.:443", "network.allow[0]"),
        ("connect a.example.org:8080", "network.allow[1]"),
        ("connect 10.1.2.3:5432", "network.allow[2]"),
        ("http GET https://api.example.com/repos/x?page=2", "network.allow[0]"),
        ("http GET https://api.example.com:443/repos/x", "network.allow[0]"),
        ("http DELETE https://a.example.org/anything/../at/all", "network.allow[1]"),
        ("http PUT http://a.example.org:8080/", "network.allow[1]"),
        ("http POST http://plain.example.com", "network.allow[3]"),
        ("http GET https://raw.example.com/", "network.allow[4]"),
        ("http GET http://raw.example.com:443/", "network.allow[4]"),
        ("read /data", "filesystem.mounts[/data]"),
        ("read /data/deep/file", "filesystem.mounts[/data]"),
        ("write /a/out/x", "filesystem.mounts[/a/out]"),
        ("read /a", ""),
        ("read /", ""),
        ("read /workspace/x", ""),
        ("write out/x", ""),
        ("write /tmp/x", ""),
        ("write /dev/null", ""),
        ("read /proc/self/status", ""),
        ("write /proc/self/fd/1", ""),
        ("read /usr/lib/python3", ""),
        ("read /bin/sh", ""),
        ("read /etc/passwd", ""),
        ("resource memory=64M", "resources.memory"),
        ("resource memory=1", "resources.memory"),
        ("resource processes=64", "resources.processes"),
        ("resource cpus=0.5", "resources.cpus"),
        ("resource timeout=10", "resources.timeout"),
        ("resource cpu_time=15s", "resources.timeout"),
        ("command ls -l", "commands.allow"),
        ("command git status && ls", "commands.allow"),
    ],
)
def test_what_a_policy_opens_is_allowed_by_that_key(attempt: str, rule: str) -> None:
    decision = ask(attempt)
    assert (decision.verdict, decision.rule, decision.fix) == ("allow", rule, "")
    assert decision.reason


@pytest.mark.parametrize(
    ("attempt", "rule", "why", "remedy"),
    [
        (
            "connect evil.example:443",
            "network.allow",
            "no rule opens this name",
            "add {host: evil.example, ports: [443]} to network.allow",
        ),
        ("connect localhost:5432", "network.allow", "no rule", "add {host: localhost, ports: [5432], private: true}"),
        ("connect api.example.com:80", "network.allow[0]", "the rule opens only 443 there", "add 80 to ports of"),
        ("connect 169.254.169.254:80", "network.allow", "no rule opens this address", "private: true}"),
        ("http POST https://api.example.com/repos/x", "network.allow[0]", "allows only GET", "add POST to methods"),
        ("http GET https://api.example.com/x", "network.allow[0]", "no rule allows this path", "add /x to paths"),
        ("http GET https://api.example.com/repos/%2e%2e/x", "network.allow[0]", "the path climbs", ""),
        (
            "http GET http://a.example.org:443/",
            "network.allow[1]",
            "only tls",
            "set protocol: http in network.allow[1]",
        ),
        ("http GET https://plain.example.com:80/", "network.allow[3]", "only http", "set protocol: tls"),
        ("http GET https://evil.example/", "network.allow", "no rule opens this name", "add {host: evil.example"),
        ("write /data/x", "filesystem.mounts[/data]", "read-only", "set mode: rw in filesystem.mounts[/data]"),
        (
            "read /home/ann/x",
            "filesystem.mounts",
            "nothing is mounted there",
            "add {source: /home/ann/x, target: /home/ann/x} to filesystem.mounts",
        ),
        ("write /home/ann/x", "filesystem.mounts", "nothing is mounted", "mode: rw} to filesystem.mounts"),
        ("read /database", "filesystem.mounts", "nothing is mounted", "add {source: /database"),
        ("read /etc/shadow", "", "/etc is the sandbox's own", ""),
        ("read /proc/kcore", "", "/proc is the sandbox's own", ""),
        ("read /proc/tty/drivers", "", "/proc is the sandbox's own", ""),
        ("read /sys/kernel", "", "/sys is the sandbox's own", ""),
        ("read /dev/sda", "", "/dev is the sandbox's own", ""),
        ("write /usr/bin/x", "", "nothing there can be written", ""),
        ("write /", "", "nothing there can be written", ""),
        ("resource memory=65M", "resources.memory", "the limit is 64M", "set resources.memory: 65M"),
        ("resource processes=65", "resources.processes", "the limit is 64", "set resources.processes: 65"),
        ("resource cpu_time=16s", "resources.cpu_time", "the limit is 15s", "set resources.cpu_time: 16s"),
        ("command rm x", "commands.allow", "rm is not allowed", "add 'rm' to commands.allow"),
        ("command ls; git -C /x push", "commands.deny[git push]", "'git -C /x push': this is denied", "remove"),
        ("command rm x; mv y z", "commands.allow", "rm is not allowed", "add 'mv' to commands.allow"),
        ("command ls $(", "commands.allow", "", ""),
    ],
)
def test_a_denial_names_the_key_the_reason_and_the_smallest_change(
    attempt: str, rule: str, why: str, remedy: str
) -> None:
    decision = ask(attempt)
    assert (decision.verdict, decision.rule) == ("deny", rule)
    assert why in decision.reason
    assert remedy in decision.fix
    assert bool(decision.fix) is bool(remedy) or attempt.startswith("command")


def test_without_rules_any_command_may_run() -> None:
    assert ask("command rm -rf /", Policy()).rule == "commands"


def test_cpu_time_is_bounded_by_the_clock_too() -> None:
    """A limit of its own does not help a run that is over before."""
    policy = Policy(resources={"timeout": "10s", "cpus": 0.5, "cpu_time": "1h"})
    decision = ask("resource cpu_time=6s", policy)
    assert (decision.allowed, decision.rule, decision.fix) == (False, "resources.timeout", "set resources.timeout: 12s")
    assert ask("resource cpu_time=720h", Policy(resources={"cpus": 0.5})).fix == ""


def test_packages_are_shown_only_if_the_policy_has_some() -> None:
    assert not ask("read /opt/environment/pandas").allowed
    policy = Policy(environment={"packages": ["pandas"]})
    assert ask("read /opt/environment/pandas", policy).allowed
    assert ask("read /opt", policy).allowed
    assert not ask("write /opt/environment/pandas", policy).allowed


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is not an attempt"),
        ("connect", "is not an attempt"),
        ("fly to the moon", "is not an attempt"),
        ("connect example.com", "must be host:port"),
        ("connect *.example.com:443", "must be one host"),
        ("connect exämple.com:443", "ASCII form"),
        ("connect example.com:70000", "must be host:port"),
        ("http get https://example.com/", "must be a method and an address"),
        ("http GET ftp://example.com/", "must be a method and an address"),
        ("http GET https://user@example.com/", "user's name in front of the host"),
        ("http GET https://example.com:99999/", "the largest is 65535"),
        ("http GET https://example.com/a b", "must be a method and an address"),
        ("http GET https://example.com/#x", "must be a method and an address"),
        ("http GET https://0x7f.1/", "is no host name"),
        ("read ../x", "must not contain .."),
        ("read /data/../etc/shadow", "must not contain .."),
        ("write /x\x1b[2J", "control or invisible"),
        ("resource memory", "must be a resource and an amount"),
        ("resource memroy=1G", "the resources are timeout, cpu_time, memory"),
        ("resource memory=lots", "a size is"),
        ("resource timeout=-1", "a duration goes from"),
        ("resource processes=1.5", "whole number of processes"),
        ("resource processes=-3", "a number, such as processes=4"),
        ("resource cpus=1e9", "a number, such as cpus=4"),
        ("command " + "x" * 5000, "1 to 4096 characters"),
    ],
)
def test_an_attempt_that_makes_no_sense_is_one_clear_error(text: str, reason: str) -> None:
    with pytest.raises(UsageError, match=re.escape(reason)) as caught:
        parse_attempt(text)
    assert "\n" not in str(caught.value)
    assert "tests[0]" not in str(caught.value)


NAMES = st.sampled_from(["data", "out", "x", "etc", "usr", "proc", "self", "kcore", "workspace", "home", "tmp", "dev"])
PATHS = st.lists(NAMES, max_size=4).map(lambda names: "/" + "/".join(names))
TARGETS = st.lists(st.sampled_from(["data", "out", "x", "home"]), min_size=1, max_size=3).map("/".join)
FILE_KINDS = cast("st.SearchStrategy[AttemptKind]", st.sampled_from(["read", "write"]))
SIZES = st.integers(4096, 2**40)


@given(PATHS, TARGETS, st.sampled_from(["ro", "rw"]))
def test_a_mount_opens_what_is_below_its_target_and_closes_nothing(path: str, target: str, mode: str) -> None:
    mount = {"source": "/srv/x", "target": f"/{target}", "mode": mode}
    before, after = Judge(Policy()), Judge(Policy(filesystem={"mounts": [mount]}))
    is_below = f"{path}/".startswith(f"/{target}/")
    assert after.decide("read", path).allowed or not (is_below or before.decide("read", path).allowed)
    assert after.decide("write", path).allowed == (mode == "rw" if is_below else before.decide("write", path).allowed)


@given(PATHS)
def test_what_may_be_written_may_be_read(path: str) -> None:
    judge = Judge(POLICY)
    assert judge.decide("read", path).allowed or not judge.decide("write", path).allowed


@given(FILE_KINDS, PATHS)
def test_the_change_for_a_file_allows_it(kind: AttemptKind, path: str) -> None:
    decision = Judge(Policy()).decide(kind, path)
    found = re.fullmatch(r"add (\{.*\}) to filesystem\.mounts", decision.fix)
    if found is not None:
        changed = Policy.loads(f"filesystem: {{mounts: [{found[1]}]}}")
        assert Judge(changed).decide(kind, path).allowed


@given(st.sampled_from(["memory", "disk", "output"]), SIZES, SIZES)
def test_an_amount_is_allowed_up_to_the_limit_and_the_change_allows_it(name: str, limit: int, amount: int) -> None:
    policy = Policy(resources={name: max(limit, 2**24)})
    decision = Judge(policy).decide("resource", f"{name}={amount}")
    assert decision.allowed == (amount <= max(limit, 2**24))
    if not decision.allowed:
        key, _, value = decision.fix.removeprefix("set resources.").partition(": ")
        assert Judge(Policy(resources={key: value})).decide("resource", f"{name}={amount}").allowed


@given(st.floats(0.001, 100, allow_nan=False), st.floats(0.01, 8), st.floats(0.001, 1000))
def test_the_change_for_cpu_time_allows_it(timeout: float, cpus: float, wanted: float) -> None:
    amount = f"{wanted:.3f}s"
    policy = Policy(resources={"timeout": timeout, "cpus": cpus})
    decision = Judge(policy).decide("resource", f"cpu_time={amount}")
    assert decision.allowed == (float(amount[:-1]) <= timeout * cpus)
    assert decision.allowed or decision.fix.startswith("set resources.timeout: ")


@given(
    st.sampled_from(["api.example.com", "x.example.org", "evil.example", "10.0.0.1", "8.8.8.8"]), st.integers(1, 65535)
)
def test_the_change_for_a_name_allows_it(host: str, port: int) -> None:
    decision = ask(f"connect {host}:{port}")
    found = re.fullmatch(r"add (\{.*\}) to network\.allow", decision.fix)
    if found is not None:
        assert ask(f"connect {host}:{port}", Policy.loads(f"network: {{allow: [{found[1]}]}}")).allowed
    assert decision.allowed or decision.fix


@given(
    st.sampled_from(["GET", "POST", "DELETE"]),
    st.sampled_from(["https", "http"]),
    st.sampled_from(["evil.example", "10.0.0.1", "8.8.8.8", "[2001:db8::1]"]),
    st.sampled_from(["", ":80", ":443", ":8080"]),
    st.sampled_from(
        ["", "/", "/a/b", "/a/b?c=d", "/a/%2e%2e/b", "/a/*", "/[x]", "/a//b", "/a/../b", "/~x/y.html", "/a/."]
    ),
)
def test_the_change_for_a_request_allows_it_and_as_little_else_as_can_be(
    method: str, scheme: str, host: str, port: str, path: str
) -> None:
    attempt = f"http {method} {scheme}://{host}{port}{path}"
    found = re.fullmatch(r"add (\{.*\}) to network\.allow", ask(attempt, Policy()).fix)
    assert found is not None
    changed = Policy.loads(f"network: {{allow: [{found[1]}]}}")
    if "methods" not in found[1]:
        assert re.search(r"[%*\[]|//|/\.", path)
        return
    assert ask(attempt, changed).allowed
    assert not ask(f"http PUT {scheme}://{host}{port}{path}", changed).allowed
    assert not ask(f"http {method} {scheme}://{host}{port}/elsewhere", changed).allowed


def test_a_test_names_exactly_one_attempt() -> None:
    found = Expectation.model_validate({"write": "out/x", "expect": "allow"})
    assert (found.kind, found.target, found.attempt) == ("write", "/workspace/out/x", "write /workspace/out/x")
