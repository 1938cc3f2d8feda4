"""Digests and differences agree about what a policy means."""

from __future__ import annotations

import random
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fumehood.policy import Policy, format_size

Tree = dict[str, Any]


def some(pool: list[Any], most: int = 3) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.sampled_from(pool), unique=True, max_size=most)


def section(**keys: st.SearchStrategy[Any]) -> st.SearchStrategy[Tree]:
    return st.fixed_dictionaries({}, optional=keys)


SIZES = st.sampled_from([64 * 1024**2, 256 * 1024**2, 512 * 1024**2, 10**8])
MOUNTS = st.lists(
    st.fixed_dictionaries(
        {"source": st.sampled_from(["/srv/a", "/srv/b"]), "target": st.sampled_from(["/a", "/b", "/c"])},
        optional={"mode": st.sampled_from(["ro", "rw"])},
    ),
    max_size=3,
    unique_by=lambda mount: mount["target"],
)
RULES = st.lists(
    st.fixed_dictionaries(
        {
            "host": st.sampled_from(["a.com", "*.b.com", "::1"]),
            "ports": st.lists(st.sampled_from([80, 443]), unique=True, min_size=1),
        },
        optional={
            "protocol": st.sampled_from(["tls", "http"]),
            "methods": st.lists(st.sampled_from(["GET", "PUT"]), unique=True, min_size=1),
            "paths": st.lists(st.sampled_from(["/x", "/y", "/x /y"]), unique=True, min_size=1),
            "private": st.booleans(),
            "max_bytes": SIZES,
            "max_connections": st.integers(1, 2),
            "max_rate": st.sampled_from([1.0, 1.0000001]),
        },
    ),
    max_size=3,
)
SECRETS = st.lists(
    st.fixed_dictionaries(
        {
            "name": st.sampled_from(["A", "B"]),
            "from_env": st.sampled_from(["A", "B"]),
            "inject": st.fixed_dictionaries({"host": st.just("a.com")}, optional={"header": st.just("X-Key")}),
        }
    ),
    max_size=2,
    unique_by=lambda secret: secret["name"],
)
TREES = section(
    version=st.just(1),
    name=st.sampled_from(["a", "b"]),
    backend=st.sampled_from(["auto", "native", "docker"]),
    strict=st.booleans(),
    filesystem=section(mounts=MOUNTS, workspace=section(size=SIZES), outputs=some(["out/**", "*.csv"])),
    network=section(allow=RULES),
    resources=section(
        timeout=st.sampled_from([30, 10.5]),
        cpu_time=st.sampled_from([5, 6]),
        memory=SIZES,
        cpus=st.sampled_from([1, 0.5, 1.0000001]),
        processes=st.sampled_from([64, 65]),
    ),
    environment=section(
        packages=some(["pandas", "numpy"]), preload=some(["os", "re"]), allow_sdists=st.booleans()
    ),
    secrets=SECRETS,
    commands=section(allow=some(["ls", "cat"]), deny=some(["rm"]), enforce=st.sampled_from(["parse", "kernel"])),
    approvals=some([{"tool": "shell"}, {"tool": "python", "when": "never"}]) if False else st.just([]),
    docker=section(runtime=st.just("runsc"), image=st.sampled_from(["a", "b"])),
    image=st.sampled_from(["a", "b"]),
    tests=st.just([{"read": "/x", "expect": "deny"}]),
)
UNORDERED = {"mounts", "outputs", "ports", "methods", "paths", "packages", "secrets", "deny"}


def shuffled(tree: Any, seed: random.Random, key: str = "") -> Any:
    """The same meaning in another order: keys anywhere, items where order says nothing."""
    if isinstance(tree, dict):
        items = list(tree.items())
        seed.shuffle(items)
        return {name: shuffled(value, seed, name) for name, value in items}
    if isinstance(tree, list):
        items = [shuffled(item, seed) for item in tree]
        if key in UNORDERED:
            seed.shuffle(items)
        return items
    if key in {"memory", "size", "max_bytes"} and seed.random() < 0.5:
        return format_size(tree)
    return tree
