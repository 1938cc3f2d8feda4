"""What a reviewer reads when a policy changes."""

from __future__ import annotations

from typing import Any

import pytest

from fumehood.policy import Policy

Tree = dict[str, Any]


def network(*rules: Tree) -> Tree:
    return {"network": {"allow": [{"host": "api.github.com", "ports": [443], **rule} for rule in rules]}}


def mount(**fields: str) -> Tree:
    return {"filesystem": {"mounts": [{"source": "/srv/data", "target": "/data", **fields}]}}


def secret(**fields: str) -> Tree:
    return {"secrets": [{"name": "TOKEN", "inject": {"host": "a.com"}, **fields}]}


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        ({}, {}, []),
        ({}, network({}), ["opens api.github.com:443"]),
        (network({}), {}, ["closes api.github.com:443"]),
        ({}, network({"methods": ["GET"], "paths": ["/x"]}), ["opens api.github.com:443 (GET, /x)"]),
        ({}, network({"methods": ["GET"]}, {}), ["opens api.github.com:443 (GET) or (anything)"]),
        (
            network({"methods": ["GET"]}),
            network({"methods": ["GET", "POST"]}),
            ["changes api.github.com:443 from (GET) to (GET POST)"],
        ),
        (network({}), network({"ports": [443, 8443]}), ["opens api.github.com:8443"]),
        (
            network({}),
            network({"private": True}),
            ["changes api.github.com:443 from (anything) to (private addresses too)"],
        ),
        (
            network({"paths": ["/x"]}),
            network({"paths": ["/x"], "headers": ["X-Tenant", "x-a-*"]}),
            ["changes api.github.com:443 from (/x) to (/x, with headers x-a-* x-tenant)"],
        ),
        (network({"host": "::1"}), {}, ["closes [::1]:443"]),
        (network({}, {"host": "a.com"}), network({"host": "a.com"}, {}), ["rearranges network.allow"]),
        ({"resources": {"memory": "256M"}}, {"resources": {"memory": "1G"}}, ["raises memory 256M -> 1G"]),
        ({}, {"resources": {"timeout": 10}}, ["lowers timeout 30s -> 10s"]),
        ({}, {"resources": {"cpus": 0.5}}, ["lowers cpus 1 -> 0.5"]),
        ({}, {"resources": {"cpu_time": 5}}, ["sets cpu_time to 5s"]),
        ({"resources": {"cpu_time": 5}}, {}, ["clears cpu_time (was 5s)"]),
        ({}, {"resources": {"artifacts": 10}}, ["lowers artifacts 1000 -> 10"]),
        ({}, {"resources": {"artifacts_size": "1G"}}, ["raises artifacts_size 256M -> 1G"]),
        ({}, {"filesystem": {"outputs": ["out/**"]}}, ["adds output out/**"]),
        ({}, mount(), ["mounts /srv/data at /data (ro)"]),
        (mount(), {}, ["unmounts /srv/data at /data (ro)"]),
        (mount(), mount(mode="rw"), ["changes mount /data from ro to rw"]),
        (mount(), mount(source="/srv/b"), ["changes mount /data from /srv/data to /srv/b"]),
        ({}, {"environment": {"packages": ["pandas==2.3.*"]}}, ["adds package pandas==2.3.*"]),
        ({"environment": {"packages": ["a"]}}, {}, ["removes package a"]),
        (
            {"environment": {"preload": ["a", "b"]}},
            {"environment": {"preload": ["b", "a"]}},
            ["rearranges environment.preload"],
        ),
        ({}, {"strict": True}, ["turns strict on"]),
        ({"environment": {"allow_sdists": True}}, {}, ["turns environment.allow_sdists off"]),
        ({}, {"backend": "docker"}, ["changes backend from auto to docker"]),
        ({}, {"image": "python"}, ["sets image to python"]),
        ({}, {"docker": {"runtime": "runsc"}}, ["sets docker.runtime to runsc"]),
        ({}, {"commands": {"deny": ["git push"]}}, ["adds git push to commands.deny"]),
        ({}, {"commands": {"allow": []}}, ["sets commands.allow to none"]),
        (
            {},
            {"approvals": [{"tool": "shell", "risk": "high"}]},
            ["adds approval shell always (risk high, expires after 10m)"],
        ),
        (
            {},
            secret(from_env="T"),
            ["adds secret TOKEN from variable T, sent to a.com as Authorization: Bearer {}"],
        ),
        (
            secret(from_file="/t"),
            {},
            ["removes secret TOKEN from file /t, sent to a.com as Authorization: Bearer {}"],
        ),
    ],
)
def test_a_change_is_told_in_words(old: Tree, new: Tree, lines: list[str]) -> None:
    assert Policy(**old).diff(Policy(**new)) == lines


def test_a_secret_that_moves_is_told_from_where_to_where() -> None:
    (line,) = Policy(**secret(from_env="A")).diff(Policy(**secret(from_env="B")))
    assert line.startswith("changes secret TOKEN from variable A")
    assert "to TOKEN from variable B" in line
