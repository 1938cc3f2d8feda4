"""Every change that a refusal prints is applied to the letter, and the attempt is allowed then."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import Any

import pytest
import yaml

from fumehood.cli.overrides import parse_host, remedy_in_flags
from fumehood.policy import Policy
from fumehood.policy.decisions import Judge, parse_attempt
from fumehood.policy.egress import Rulebook, to_denial
from fumehood.policy.hosts import split_endpoint
from fumehood.policy.learned_rules import learn
from fumehood.results import Denial

_NARROW = {"host": "api.example", "ports": [443], "methods": ["GET"], "paths": ["/a/**"]}
_METHODS = {"host": "methods.example", "ports": [443], "methods": ["GET"]}
_PATHS = {"host": "paths.example", "ports": [443], "paths": ["/a/**"]}
POLICY: dict[str, Any] = {
    "network": {
        "allow": [
            {"host": "open.example", "ports": [443]},
            {"host": "localhost", "ports": [8000]},
            {"host": "10.0.0.0/8", "ports": [80]},
            _NARROW,
            _METHODS,
            _PATHS,
            {"host": "*.wild.example", "ports": [443]},
            {"host": "127.0.0.1", "ports": [9000], "private": True, "protocol": "http"},
        ]
    },
    "filesystem": {"mounts": [{"source": "/srv", "target": "/data", "mode": "ro"}]},
}
ATTEMPTS = [
    *("connect example.com:443", "connect example.com:80", "connect example.com:5432", "connect 93.184.216.34:443"),
    *("connect open.example:80", "connect localhost:8000", "connect localhost:8001", "connect app.localhost:3000"),
    *("connect 127.0.0.1:8000", "connect 127.0.0.1:9001", "connect [::1]:8000", "connect 10.1.2.3:80"),
    *("connect 10.1.2.3:443", "connect 169.254.169.254:80", "connect [2001:db8::1]:443", "connect 192.168.1.1:5432"),
    f"connect {'a' * 63}.{'b' * 20}.wild.example:443",
    *("http GET http://localhost:8000/x", "http GET http://localhost:9000/x", "http GET http://127.0.0.1:8000/x"),
    *("http GET http://127.0.0.1:9000/x", "http GET http://[::1]:9000/", "http POST https://api.example/a/b"),
    *("http GET https://api.example/b", "http PUT https://api.example/b", "http COPY https://paths.example/a/b"),
    *(
        "http DELETE https://methods.example/x?y=z",
        "http GET http://open.example:443/",
        "http GET https://new.example/",
    ),
    *(
        "http GET https://new.example/a?b=c",
        "http POST http://new.example:8080/a",
        "http GET https://new.example/a%20b",
    ),
    *("http GET https://methods.example/?_method=PUT", "http PURGE https://new.example/x"),
    *("read /home/me/data.csv", "read /home/me/my, data: {x} #1.csv", 'read /home/me/it\'s "here".csv', "read /opt/x"),
    *("write /home/me/out.csv", "write /data/out.csv", "read /etc/shadow", "read /proc/kcore", "write /usr/bin/x"),
    *("read /root/.ssh/id_rsa", "read /var/run/docker.sock", "read /dev/mem", "write /home/- a"),
    *(
        "resource memory=1G",
        "resource memory=1500M",
        "resource timeout=1h",
        "resource timeout=90s",
        "resource cpus=2.5",
    ),
    *(
        "resource cpu_time=10m",
        "resource disk=3G",
        "resource processes=1000",
        "resource output=1G",
        "resource inodes=1000000",
    ),
    *("resource open_files=5000", "resource timeout=700h", "resource memory=900G"),
]
_KEY = r"(network\.allow|filesystem\.mounts)\[(.+?)\]"


def apply(data: dict[str, Any], fix: str) -> dict[str, Any]:
    """The policy with the change that a sentence names, read as a person reads it."""
    data = yaml.safe_load(yaml.safe_dump(data))
    if match := re.fullmatch(r"add (\{.*\}) to (network\.allow|filesystem\.mounts)", fix):
        section, _, key = match[2].partition(".")
        data.setdefault(section, {}).setdefault(key, []).append(yaml.safe_load(match[1]))
    elif match := re.fullmatch(r"set resources\.(\w+): (\S+)", fix):
        data.setdefault("resources", {})[match[1]] = yaml.safe_load(match[2])
    elif match := re.fullmatch(rf"set (\w+): (\w+) in {_KEY}", fix):
        rule_of(data, match[3], match[4])[match[1]] = yaml.safe_load(match[2])
    elif match := re.fullmatch(rf"add (\d+) to ports of {_KEY}", fix):
        rule_of(data, match[2], match[3])["ports"].append(int(match[1]))
    elif match := re.fullmatch(rf"add (\S+) to paths of {_KEY}(?:, and (\w+) to its methods)?", fix):
        rule = rule_of(data, match[2], match[3])
        rule["paths"].append(match[1])
        rule.setdefault("methods", []).extend([match[4]] if match[4] else [])
        rule = {key: value for key, value in rule.items() if value != []}
    elif match := re.fullmatch(rf"add (\w+) to methods of {_KEY}", fix):
        rule_of(data, match[2], match[3])["methods"].append(match[1])
    elif match := re.fullmatch(rf"list methods in {_KEY}, (\w+) among them", fix):
        rule_of(data, match[1], match[2])["methods"] = ["GET", match[3]]
    elif match := re.fullmatch(rf"leave methods and paths out of {_KEY}(?:, or send it by POST)?", fix):
        rule = rule_of(data, match[1], match[2])
        rule.pop("methods", None), rule.pop("paths", None)
    else:
        raise AssertionError(f"this is a change that nobody can make: {fix!r}")
    for rule in data.get("network", {}).get("allow", []):
        if rule.get("methods") == []:
            del rule["methods"]
    return data


def rule_of(data: dict[str, Any], section: str, place: str) -> dict[str, Any]:
    if section == "network.allow":
        return data["network"]["allow"][int(place)]
    return next(mount for mount in data["filesystem"]["mounts"] if mount["target"] == place)


FLAGS = [
    ([], "connect example.com:443"),
    ([], "connect [::1]:8000"),
    ([], "connect localhost:8000"),
    (["example.com"], "connect example.com:5432"),
    (["example.com"], "connect 10.1.2.3:80"),
]


@pytest.mark.parametrize(("hosts", "text"), FLAGS)
def test_without_a_policy_the_option_that_is_printed_allows_the_attempt(hosts: list[str], text: str) -> None:
    book = Rulebook(policy_of(hosts))
    place = parse_attempt(text).target
    denial = to_denial(book.decide_connection(*split_endpoint(place)))
    added, option, value = remedy_in_flags(denial).split()
    assert (added, option) == ("add", "--allow")
    assert Rulebook(policy_of([*hosts, value])).decide_connection(*split_endpoint(place)).allowed


def test_without_a_policy_what_no_option_can_say_is_a_rule_for_a_file() -> None:
    book = Rulebook(policy_of(["db.example:5432"]))
    route = book.find_route("db.example", 5432)
    assert route is not None
    said = remedy_in_flags(to_denial(book.decide_address(route, ip_address("10.0.0.1"))))
    match = re.fullmatch(r"give --policy a file with (.*) in network.allow, instead of --allow", said)
    assert match is not None
    book = Rulebook(Policy(network={"allow": [yaml.safe_load(match[1])]}))
    route = book.find_route("db.example", 5432)
    assert route is not None
    assert book.decide_address(route, ip_address("10.0.0.1")).allowed


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "localhost:8000"])
@pytest.mark.parametrize("rule", ["localhost", "127.0.0.1"])
def test_a_request_may_name_the_loopback_as_it_likes(rule: str, host: str) -> None:
    book = Rulebook(Policy(network={"allow": [{"host": rule, "ports": [8000], "private": True, "protocol": "http"}]}))
    route = book.find_route(rule, 8000)
    assert route is not None
    assert book.decide_request(route, "GET", "/", host).allowed
    assert not book.decide_request(route, "GET", "/", "evil.example").allowed


def test_what_is_learned_of_the_loopback_is_a_policy_that_allows_it() -> None:
    denial = Denial("connect", "connect localhost:8000", "nothing goes out while learning", host="localhost", port=8000)
    learned = learn(Policy(), [denial]).policy
    assert Rulebook(learned).decide_connection("localhost", 8000).allowed


def policy_of(hosts: list[str]) -> Policy:
    return Policy(network={"allow": [parse_host(host) for host in hosts]})


@pytest.mark.parametrize("text", ATTEMPTS)
def test_the_change_that_a_refusal_prints_allows_the_attempt(text: str) -> None:
    data = POLICY
    attempt = parse_attempt(text)
    for _ in range(3):  # a new rule may meet another reason
        decision = Judge(Policy(**data)).decide(attempt.kind, attempt.target)
        if decision.allowed or not decision.fix:
            break
        data = apply(data, decision.fix)
        again = Judge(Policy(**data)).decide(attempt.kind, attempt.target)
        assert again.reason != decision.reason or again.allowed, decision.fix
    assert decision.allowed or not decision.fix
