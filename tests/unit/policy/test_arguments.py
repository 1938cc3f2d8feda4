"""Policies and durations in every form that a caller has at hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fumehood.errors import PolicyError, UsageError
from fumehood.policy import Policy, read_policy, read_seconds


def test_a_policy_is_read_from_each_of_its_forms(tmp_path: Path) -> None:
    policy = Policy(resources={"memory": "64M"})
    file = tmp_path / "small.yaml"
    file.write_text("resources: {memory: 64M}\n")
    for form in (policy, {"resources": {"memory": "64M"}}, file, str(file)):
        assert read_policy(form) == policy


def test_without_a_policy_the_caller_decides() -> None:
    assert read_policy(None) is None


@pytest.mark.parametrize("other", [42, b"small.yaml", ["small.yaml"], object(), Policy])
def test_anything_else_is_refused_with_what_is_taken(other: Any) -> None:
    with pytest.raises(
        UsageError, match="policy must be a Policy, a mapping, the path of a policy file or the name of one; this is"
    ):
        read_policy(other)


def test_the_text_of_a_policy_is_not_taken_for_a_path() -> None:
    with pytest.raises(UsageError, match=r"use Policy\.loads"):
        read_policy("version: 1\nresources: {memory: 64M}\n")


def test_an_unknown_key_of_a_mapping_names_the_nearest_one() -> None:
    with pytest.raises(PolicyError, match=r"resorces.*did you mean `?resources"):
        read_policy({"resorces": {"memory": "64M"}})


def test_a_missing_file_is_named() -> None:
    with pytest.raises(PolicyError, match=r"no\.yaml: cannot be read: there is no such file"):
        read_policy("no.yaml")


@pytest.mark.parametrize(("given", "seconds"), [(5, 5.0), (2.5, 2.5), ("5s", 5.0), ("500ms", 0.5), ("2m", 120.0)])
def test_a_duration_is_a_number_or_is_spelled_as_in_policies(given: float | str, seconds: float) -> None:
    assert read_seconds(given) == seconds


@pytest.mark.parametrize("given", ["soon", "5 parsecs", 0, -1, float("nan"), float("inf"), True, None, b"5s"])
def test_what_is_not_a_duration_is_refused_by_the_name_of_its_argument(given: Any) -> None:
    with pytest.raises(UsageError, match=r"deadline .* is not valid: a duration goes from 1ms to 720h"):
        read_seconds(given, "deadline")


def test_a_file_with_any_number_of_mistakes_does_not_fill_a_terminal(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("".join(f"x{number}: 1\n" for number in range(1000)))
    with pytest.raises(PolicyError) as caught:
        read_policy(tmp_path / "x.yaml")
    assert len(caught.value.problems) == 1000
    lines = str(caught.value).splitlines()
    assert (len(lines), lines[-1]) == (21, "... and 980 more mistakes")
