"""What the command line changes of a policy, and how it says what is wrong."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fumehood.cli import overrides
from fumehood.cli.completion import contexts
from fumehood.errors import PolicyError, UsageError
from fumehood.policy import Policy


@dataclass
class Flags:
    timeout: str | None = None
    memory: str | None = None
    cpus: float | None = None
    backend: str | None = None
    disk: str | None = None
    processes: int | None = None
    hosts: list[str] = field(default_factory=list[str])
    publish: list[int] = field(default_factory=list[int])
    packages: list[str] = field(default_factory=list[str])


def policy_of(flags: Flags, mounts: list[str] | None = None, file: Path | None = None) -> Policy:
    chosen = overrides.Arguments(**vars(flags), policy=str(file) if file else None, mount=mounts or [], env=[])
    return overrides.load_policy(chosen)


def refusal(flags: Flags, mounts: list[str] | None = None) -> str:
    with pytest.raises(UsageError) as caught:
        policy_of(flags, mounts)
    return str(caught.value)


@pytest.mark.parametrize("command", ["run", "shell", "mcp", "agent run", "agent chat", "agent resume"])
def test_every_command_that_opens_a_sandbox_has_the_same_options(command: str) -> None:
    words = next(context.words for context in contexts() if context.place == command)
    # A port is published for one program.
    flags = {*overrides._FLAGS.values(), "--policy", "--no-config", "-v"} - {"--publish"}
    assert flags <= set(words)


def test_without_a_word_everything_is_denied() -> None:
    assert policy_of(Flags()) == Policy()


def test_a_flag_changes_its_key_and_no_other(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("resources: {memory: 1G, timeout: 5s}\n")
    policy = policy_of(Flags(timeout="2m", cpus=2.0, backend="native"), file=file)
    assert (policy.resources.timeout, policy.resources.cpus, policy.backend) == (120.0, 2.0, "native")
    assert policy.resources.memory == 1024**3


def test_a_mount_is_added_to_those_of_the_policy(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("filesystem: {mounts: [{source: ., target: /data}]}\n")
    policy = policy_of(Flags(), ["/opt:/tools:rw"], file)
    assert [(m.source, m.target, m.mode) for m in policy.filesystem.mounts] == [
        (str(tmp_path), "/data", "ro"),
        ("/opt", "/tools", "rw"),
    ]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a:/b", ("a", "/b", "ro")),
        ("a:/b:rw", ("a", "/b", "rw")),
        ("a:b:/c:ro", ("a:b", "/c", "ro")),
        ("./ro:/ro", ("./ro", "/ro", "ro")),
    ],
)
def test_a_mount_is_source_target_and_mode(text: str, parts: tuple[str, str, str]) -> None:
    mount = overrides.parse_mount(text)
    assert (mount["source"], mount["target"], mount["mode"]) == parts


@pytest.mark.parametrize("text", ["", "/data", ":/data"])
def test_a_mount_without_both_ends_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="must be SRC:DST"):
        overrides.parse_mount(text)


@pytest.mark.parametrize(
    ("flags", "mounts", "start"),
    [
        (Flags(memory="0"), [], "--memory: a size is"),
        (Flags(memory="1K"), [], "--memory: must be from 16M"),
        (Flags(timeout="-1"), [], "--timeout: a duration goes from 1ms"),
        (Flags(timeout="soon"), [], "--timeout: a duration goes from 1ms"),
        (Flags(cpus=0.0), [], "--cpus: must be from 0.01"),
        (Flags(backend="moon"), [], "--backend: must be one of auto, native"),
        (Flags(), ["/x:/proc/y"], "--mount /x:/proc/y: target: is inside /proc"),
        (Flags(), ["/x:relative"], "--mount /x:relative: target: must be an absolute path"),
        (Flags(), ["/x:/a", "/y:/a"], "--mount: two mounts have the target /a"),
    ],
)
def test_a_mistake_is_named_by_its_flag(flags: Flags, mounts: list[str], start: str) -> None:
    assert refusal(flags, mounts).startswith(start)


def test_a_mistake_in_the_file_is_named_by_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("resources:\n  memroy: 1G\n")
    with pytest.raises(PolicyError, match=r"policy.yaml:2: resources.memroy"):
        policy_of(Flags(memory="1G"), file=file)


def test_variables_are_set_or_passed_on() -> None:
    assert overrides.environment(["A=1", "B=x=y", "C=", "D"], {"D": "mine", "E": "kept out"}) == {
        "A": "1",
        "B": "x=y",
        "C": "",
        "D": "mine",
    }


@pytest.mark.parametrize(("entry", "reason"), [("=1", "has no name"), ("", "has no name"), ("X", "no such variable")])
def test_a_bad_variable_is_refused(entry: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        overrides.environment([entry], {})


def test_limits_are_named_by_their_flags_where_there_is_one() -> None:
    assert overrides.name_flags("raise resources.memory") == "raise --memory"
    assert overrides.name_flags("raise resources.inodes") == "raise resources.inodes"


def test_disk_and_processes_have_flags() -> None:
    policy = policy_of(Flags(disk="64M", processes=7))
    assert (policy.resources.disk, policy.resources.processes) == (64 * 1024 * 1024, 7)
    assert refusal(Flags(disk="lots")).startswith("--disk: a size is")
    assert refusal(Flags(processes=0)).startswith("--processes: must be from 1")


@pytest.mark.parametrize(
    ("text", "host", "ports"),
    [
        ("example.com", "example.com", (80, 443)),
        ("db.example:5432", "db.example", (5432,)),
        ("203.0.113.10:22", "203.0.113.10", (22,)),
        ("[2001:db8::10]:443", "2001:db8::10", (443,)),
        ("2001:db8::10", "2001:db8::10", (80, 443)),
        ("*.example.com", "*.example.com", (80, 443)),
    ],
)
def test_a_host_becomes_a_rule(text: str, host: str, ports: tuple[int, ...]) -> None:
    (rule,) = policy_of(Flags(hosts=[text])).network.allow
    assert (rule.host, rule.ports) == (host, ports)


@pytest.mark.parametrize(
    ("text", "is_private"),
    [("127.0.0.1:8000", True), ("10.0.0.7", True), ("[::1]:80", True), ("8.8.8.8", False), ("localhost", True)],
)
def test_an_address_of_the_local_network_is_meant_when_it_is_written_out(text: str, is_private: bool) -> None:
    (rule,) = policy_of(Flags(hosts=[text])).network.allow
    assert rule.private is is_private


def test_hosts_and_packages_come_on_top_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("network: {allow: [{host: a.example, ports: [443]}]}\nenvironment: {packages: [numpy]}\n")
    policy = policy_of(Flags(hosts=["b.example"], packages=["pandas"]), file=file)
    assert [rule.host for rule in policy.network.allow] == ["a.example", "b.example"]
    assert policy.environment.packages == ("numpy", "pandas")


def test_a_host_that_is_none_is_refused_in_the_words_of_the_flag() -> None:
    assert "--allow 'example.com:https' must be HOST or HOST:PORT" in refusal(Flags(hosts=["example.com:https"]))
    assert refusal(Flags(hosts=["not a host"])).startswith("--allow")
