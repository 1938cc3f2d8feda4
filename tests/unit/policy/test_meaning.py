"""Digests and differences agree about what a policy means."""

from __future__ import annotations

import json
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
            "host": st.sampled_from(["a.com", "*.b.com", "::1", "10.0.0.0/8"]),
            "ports": st.lists(st.sampled_from([80, 443]), unique=True, min_size=1),
        },
        optional={
            "protocol": st.sampled_from(["tls", "http"]),
            "methods": st.lists(st.sampled_from(["GET", "PUT"]), unique=True, min_size=1),
            "paths": st.lists(st.sampled_from(["/x", "/y", "/x /y"]), unique=True, min_size=1),
            "headers": st.lists(st.sampled_from(["X-A", "x-*"]), unique=True, min_size=1),
            "websocket": st.booleans(),
            "private": st.booleans(),
            "max_bytes": SIZES,
            "max_connections": st.integers(1, 2),
            "max_rate": st.sampled_from([1.0, 1.0000001]),
        },
    ).filter(lambda rule: "headers" not in rule or "methods" in rule or "paths" in rule),
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
    unique_by=(lambda secret: secret["name"], lambda secret: secret["inject"].get("header")),
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
    environment=section(packages=some(["pandas", "numpy"]), preload=some(["os", "re"]), allow_sdists=st.booleans()),
    secrets=SECRETS,
    commands=section(allow=some(["ls", "cat"]), deny=some(["rm"]), enforce=st.just("parse"))
    | st.just({"allow": ["ls"], "enforce": "kernel"}),
    approvals=st.lists(st.sampled_from([{"tool": "shell"}, {"tool": "python", "when": "never"}]), max_size=2),
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


@given(TREES)
def test_the_digest_is_over_the_canonical_json_of_all_that_is_enforced(tree: Tree) -> None:
    policy = Policy(**tree)
    meaning = policy.model_dump(mode="json", exclude={"name", "tests"})
    assert policy.meaning == json.dumps(meaning, sort_keys=True, separators=(",", ":")).encode()


@given(TREES, TREES)
def test_a_difference_is_empty_exactly_when_the_digests_are_equal(old_tree: Tree, new_tree: Tree) -> None:
    old, new = Policy(**old_tree), Policy(**new_tree)
    assert (old.diff(new) == []) == (old.digest == new.digest)


@given(TREES, TREES, st.data())
def test_one_changed_section_is_one_changed_meaning(old_tree: Tree, new_tree: Tree, data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(sorted(Policy.model_fields)))
    old = Policy(**old_tree)
    new = old.model_copy(update={key: new_tree[key]}) if key in new_tree else old
    assert (old.diff(new) == []) == (old.digest == new.digest)
    assert (old == new) <= (old.digest == new.digest)


@given(TREES, st.randoms(use_true_random=False))
def test_neither_order_nor_spelling_changes_the_digest(tree: Tree, seed: random.Random) -> None:
    policy, other = Policy(**tree), Policy(**shuffled(tree, seed))
    assert policy.digest == other.digest
    assert policy == other


@given(TREES)
def test_defaults_that_are_spelled_out_do_not_change_the_digest(tree: Tree) -> None:
    policy = Policy(**tree)
    assert Policy(**policy.model_dump()).digest == policy.digest
    assert Policy.model_validate_json(policy.model_dump_json()).digest == policy.digest


@given(TREES, st.booleans())
def test_the_layout_of_a_file_does_not_change_the_digest(tree: Tree, flow: bool) -> None:
    text = yaml.safe_dump(Policy(**tree).model_dump(mode="json", exclude_none=True), default_flow_style=flow)
    assert Policy.loads(f"# a comment\n{text}") == Policy(**tree)


@given(TREES)
def test_name_and_tests_do_not_change_what_is_enforced(tree: Tree) -> None:
    policy = Policy(**tree)
    other = policy.override({"name": "another", "tests": [{"command": "ls", "expect": "allow"}]})
    assert other.digest == policy.digest
    assert policy.diff(other) == []


def test_the_digest_is_computed_once() -> None:
    policy = Policy()
    assert policy.digest is policy.digest
    assert policy.digest.startswith("sha256:")
    assert len(policy.digest) == len("sha256:") + 64


def test_a_policy_whose_digest_was_taken_equals_one_whose_was_not() -> None:
    policy = Policy(strict=True)
    assert policy.digest
    assert policy == Policy(strict=True)
    assert hash(policy) == hash(Policy(strict=True))
    assert "digest" not in policy.model_dump()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"resources": {"memory": "256M"}}, {"resources": {"memory": 268435456}}),
        ({"resources": {"timeout": "2m"}}, {"resources": {"timeout": 120}}),
        ({"resources": {"cpus": 1}}, {}),
        ({"network": {"allow": []}, "version": 1}, {}),
        ({"commands": {}}, {}),
    ],
)
def test_two_spellings_of_one_meaning_have_one_digest(one: Tree, other: Tree) -> None:
    assert Policy(**one).digest == Policy(**other).digest


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"commands": {"allow": []}}, {}),
        ({"environment": {"preload": ["a", "b"]}}, {"environment": {"preload": ["b", "a"]}}),
        ({"filesystem": {"workspace": {"size": "1M"}}}, {}),
        ({"strict": True}, {}),
    ],
)
def test_two_meanings_have_two_digests(one: Tree, other: Tree) -> None:
    assert Policy(**one).digest != Policy(**other).digest
    assert Policy(**one).diff(Policy(**other))
