"""Grants: nothing is allowed unless it is said, and what is said means what it looks like."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fumehood import Policy, UnknownKeywordError
from fumehood.runtime import AgentId, Grants, TopicId
from fumehood.runtime.identity import Pattern


@pytest.mark.parametrize(
    ("pattern", "covered", "others"),
    [
        ("news", ["news/a", "news/b"], ["news2/a", "new/a", "news.a/a"]),
        ("news/a", ["news/a"], ["news/b", "news/A", "news/ab"]),
        ("news/{key}", ["news/own"], ["news/a", "news/{key}"]),
        ("news.*", ["news.a/x", "news.a.b/x"], ["news/x", "newsa/x", "news2.a/x"]),
        ("news.*/{key}", ["news.a/own"], ["news.a/x", "news/own"]),
        ("*", ["news/a", "a.b.c/d"], []),
        ("*/own", ["news/own"], ["news/a"]),
    ],
)
def test_a_pattern_covers_what_it_looks_like(pattern: str, covered: list[str], others: list[str]) -> None:
    parsed = Pattern.parse(pattern)
    assert str(parsed) == pattern
    for parse in (AgentId.parse, TopicId.parse):
        assert all(parsed.covers(parse(name), "own") for name in covered)
        assert not any(parsed.covers(parse(name), "own") for name in others)


@pytest.mark.parametrize("pattern", ["", "*.a", "a*", "a.*.b", "**", "a/", "a b", "a/\x00", "a.*x", ".*", "a..*"])
def test_a_pattern_that_could_be_read_in_two_ways_is_refused(pattern: str) -> None:
    with pytest.raises(ValidationError, match=r"is made of|printable"):
        Grants(publish=[pattern])


NAMES = st.sampled_from(["a", "b", "a.b", "a.c", "a.b.c", "ab"])
KEYS = st.sampled_from(["own", "x"])
PATTERNS = st.builds(
    lambda type, key: f"{type}/{key}" if key else type,
    st.sampled_from(["*", "a", "b", "a.*", "a.b", "a.b.*", "ab"]),
    st.sampled_from(["", "x", "own", "{key}"]),
)


@given(PATTERNS, PATTERNS, NAMES, KEYS)
def test_what_a_pattern_contains_it_covers(outer: str, inner: str, type: str, key: str) -> None:
    wide, narrow, topic = Pattern.parse(outer), Pattern.parse(inner), TopicId(type, key)
    if wide.contains(narrow) and narrow.covers(topic, "own"):
        assert wide.covers(topic, "own")


def test_no_grants_are_no_rights() -> None:
    nothing = Grants()
    assert not nothing.may_send("k", AgentId("a"))
    assert not nothing.may_publish("k", TopicId("a"))
    assert not nothing.may_receive("k", TopicId("a"))
    assert not nothing.may_subscribe(Pattern.parse("a"))
    assert not nothing.may_call("python")
    assert not nothing.may_open(Policy())


def test_grants_are_plain_data() -> None:
    policy = Policy(resources={"memory": "64M"})
    grants = Grants(agents=["a"], publish=["b.*"], tools=["python"], policies=[policy])
    assert grants.policies == (policy.digest,)
    assert Grants.model_validate_json(grants.model_dump_json()) == grants
    with pytest.raises(UnknownKeywordError, match=r"Grants\(\) has no keyword 'tool': did you mean 'tools'\?"):
        Grants.model_validate({"tool": ["python"]})
    with pytest.raises(ValidationError, match="the digest of one"):
        Grants(policies=["analyst"])


def test_a_grant_takes_a_policy_in_every_form(tmp_path: Path) -> None:
    policy = Policy(resources={"memory": "64M"})
    file = tmp_path / "small.yaml"
    file.write_text("resources: {memory: 64M}\n")
    for form in (policy, {"resources": {"memory": "64M"}}, file, str(file), policy.digest):
        assert Grants(policies=[form]).may_open(policy)


def test_a_policy_is_known_by_what_it_says_and_not_by_what_it_claims() -> None:
    small, large = Policy(), Policy(network={"allow": [{"host": "a.example", "ports": [443]}]})
    grants = Grants(policies=[small])
    assert grants.may_open(small)
    assert grants.may_open(Policy(name="another name"))
    assert not grants.may_open(large)

    large.__dict__["digest"] = small.digest
    assert large.digest == small.digest
    assert not grants.may_open(large)

    class Modest(Policy):
        digest, meaning = property(lambda self: small.digest), property(lambda self: small.meaning)  # type: ignore[assignment]

        def model_dump(self, **options: object) -> dict[str, object]:
            return small.model_dump(**options)  # type: ignore[arg-type]

    modest = Modest(network={"allow": [{"host": "a.example", "ports": [443]}]})
    assert modest.digest == small.digest
    assert not grants.may_open(modest)
