"""Choices that are allowed but dangerous."""

from __future__ import annotations

from typing import Any

import pytest

from fumehood.policy import Finding, Policy
from fumehood.policy.approvals import TOOLS
from fumehood.tools import STANDARD, change_tools, port_tools, process_tools


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/data/people/ada")


def mount(source: str, mode: str = "ro") -> Policy:
    return Policy(filesystem={"mounts": [{"source": source, "target": "/data", "mode": mode}]})


def rule(**fields: object) -> Policy:
    return Policy(network={"allow": [{"host": "api.github.com", "ports": [443], **fields}]})


def test_the_empty_policy_is_above_suspicion() -> None:
    assert Policy().lint() == []


@pytest.mark.parametrize(
    "source",
    [
        *("/", "/etc", "/etc/ssl", "/var", "/root", "/proc", "/proc/1", "/sys", "/dev", "/boot", "/home", "/tmp"),
        *("/data/people/ada", "/data/people", "/data", "~", "~/..", "/home/alice", "/root/.."),
        *("/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock"),
        *("/run/crio/crio.sock", "/run/crio", "/srv/docker.sock", "/run", "/var/run", "/run/user/1000"),
        *("/tmp/ssh-XXabcd/agent.42", "/tmp/ssh-XXabcd", "~/.ssh", "~/.ssh/id_rsa", "/home/alice/.ssh"),
        *("~/.aws", "~/.config/gcloud", "~/.config", "~/.azure", "~/.kube", "~/.kube/config", "~/.netrc", "~/.docker"),
        *("~/.gnupg", "/var/run/secrets", "/var/run/secrets/kubernetes.io", "/var/lib/kubelet", "/etc/kubernetes"),
    ],
)
def test_a_mount_that_gives_away_the_host_is_a_danger(source: str) -> None:
    (finding,) = mount(source).lint()
    assert (finding.level, finding.key) == ("danger", "filesystem.mounts[/data]")
    assert "exposes" in finding.message


@pytest.mark.parametrize(
    "source",
    ["/srv/data", "/data/sets", "~/project", "/var/lib/app", "/home/alice/project", "/etcetera", "/tmp/work", "/opt/x"],
)
def test_a_mount_of_a_folder_of_its_own_is_fine(source: str) -> None:
    assert mount(source).lint() == []


def test_any_mount_that_can_be_written_deserves_a_look() -> None:
    (finding,) = mount("/srv/data", "rw").lint()
    assert finding.level == "warning"
    assert "can change /srv/data on the host" in finding.message


@pytest.mark.parametrize(
    ("fields", "level", "part"),
    [
        ({"host": "*"}, "danger", "every host"),
        ({"host": "*.com"}, "danger", "an attacker can register"),
        ({"private": True}, "warning", "behind the firewall"),
        ({"private": True, "host": "*.a.example"}, "danger", "behind the firewall"),
        ({"private": True, "host": "169.254.169.254"}, "danger", "cloud credentials"),
        ({"host": "0.0.0.0/0"}, "danger", "every host"),
        ({"host": "128.0.0.0/1"}, "danger", "so many hosts"),
        ({"host": "2000::/3"}, "danger", "so many hosts"),
        ({"private": True, "host": "fd00::/8"}, "warning", "behind the firewall"),
        ({"private": True, "host": "10.0.0.0/8"}, "warning", "behind the firewall"),
        ({"private": True, "host": "169.254.0.0/16"}, "warning", "behind the firewall"),
        ({"host": "10.1.2.3"}, "warning", "without private: true"),
        ({"host": "10.0.0.0/8"}, "warning", "without private: true"),
        ({"protocol": "http"}, "warning", "plain http"),
        ({"ports": [80, 443]}, "warning", "plain http"),
        ({"headers": ["X-*"], "paths": ["/x"]}, "warning", "headers has x-http-method-override"),
        ({"headers": ["destination"], "methods": ["COPY"]}, "warning", "headers has destination"),
        ({"websocket": True, "paths": ["/x"]}, "warning", "what is said on a WebSocket is not read"),
    ],
)
def test_a_wide_opening_is_found(fields: dict[str, object], level: str, part: str) -> None:
    (finding,) = rule(**fields).lint()
    assert (finding.level, finding.key) == (level, "network.allow[0]")
    assert part in finding.message


@pytest.mark.parametrize(
    "fields",
    [
        *({}, {"host": "*.example.com"}, {"protocol": "tls", "ports": [80]}),
        {"headers": ["x-tenant-*"], "paths": ["/x"]},
    ],
)
def test_a_narrow_opening_is_fine(fields: dict[str, object]) -> None:
    assert rule(**fields).lint() == []


@pytest.mark.parametrize(
    ("key", "fine", "huge"),
    [
        ("timeout", "1h", "61m"),
        ("cpu_time", "1h", "61m"),
        ("memory", "16G", "17G"),
        ("cpus", 64, 65),
        ("processes", 4096, 4097),
        ("disk", "16G", "17G"),
        ("inodes", 4194304, 4194305),
        ("output", "64M", "65M"),
        ("open_files", 65536, 65537),
        ("artifacts", 10_000, 10_001),
        ("artifacts_size", "16G", "17G"),
    ],
)
def test_a_huge_limit_is_found(key: str, fine: object, huge: object) -> None:
    assert Policy(resources={key: fine}).lint() == []
    (finding,) = Policy(resources={key: huge}).lint()
    assert (finding.level, finding.key) == ("warning", f"resources.{key}")


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ({"environment": {"allow_sdists": True}}, "environment.allow_sdists"),
        ({"environment": {"index": "http://pypi.example/simple"}}, "environment.index"),
        ({"environment": {"index": "https://user:pass@pypi.example/simple"}}, "environment.index"),
        ({"docker": {"host": "tcp://engine:2375"}}, "docker.host"),
    ],
)
def test_other_dangers_are_found_at_their_key(fields: dict[str, Any], key: str) -> None:
    (finding,) = Policy(**fields).lint()
    assert (finding.level, finding.key) == ("danger", key)


def secret_findings(*rules: dict[str, object]) -> list[Finding]:
    secret = {"name": "TOKEN", "from_env": "TOKEN", "inject": {"host": "api.github.com"}}
    return Policy(secrets=[secret], network={"allow": [{"ports": [443], **rule} for rule in rules]}).lint()


def test_a_credential_for_any_request_is_found() -> None:
    for host in ("api.github.com", "*.github.com"):
        (finding,) = secret_findings({"host": host})
        assert finding.key == "secrets[TOKEN]"
        assert "every request" in finding.message


def test_a_credential_for_some_requests_is_fine() -> None:
    assert secret_findings({"host": "api.github.com", "methods": ["GET"], "paths": ["/repos/**"]}) == []


def test_a_credential_without_a_way_out_is_found() -> None:
    (finding,) = secret_findings({"host": "github.com"})
    assert "never used" in finding.message


def test_a_credential_that_would_have_to_go_in_the_open_is_found() -> None:
    for protocol in ("http", "tcp"):
        findings = secret_findings({"host": "api.github.com", "protocol": protocol})
        assert "is never used: no rule in network.allow opens api.github.com with protocol tls" in str(findings[-1])


def test_a_finding_reads_as_a_line() -> None:
    assert str(Finding("danger", "image", "is odd")) == "danger: image: is odd"


def test_dangers_are_the_worst_findings() -> None:
    policy = Policy(
        filesystem={"mounts": [{"source": "/etc", "target": "/data", "mode": "rw"}]}, resources={"memory": "1T"}
    )
    assert policy.dangers() == [finding for finding in policy.lint() if finding.level == "danger"]
    assert [finding.key for finding in policy.dangers()] == ["filesystem.mounts[/data]"]


@pytest.mark.parametrize("tool", ["pyhton", "Python", "shel", "write_files"])
def test_an_approval_for_a_tool_that_is_misspelt_is_found(tool: str) -> None:
    """It would never be asked for."""
    (finding,) = Policy(approvals=[{"tool": tool}]).lint()
    assert (finding.level, finding.key) == ("danger", "approvals[0].tool")
    assert "did you mean" in finding.message


@pytest.mark.parametrize("tool", ["*", "refund_customer", *TOOLS])
def test_an_approval_for_a_tool_of_ours_or_of_the_application_is_not(tool: str) -> None:
    assert Policy(approvals=[{"tool": tool}]).lint() == []


def test_every_tool_of_ours_is_known_to_the_policy() -> None:
    ports = port_tools(Policy(network={"publish": [8000]}))
    assert {tool.name for tool in (*STANDARD, *process_tools(), *change_tools(), *ports)} == set(TOOLS)
