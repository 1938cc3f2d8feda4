"""The policies that come with the package."""

from __future__ import annotations

from pathlib import Path

import pytest

import fumehood
from fumehood.errors import UsageError
from fumehood.policy import Policy, read_policy
from fumehood.policy.decisions import Judge
from fumehood.policy.named import NAMES, file_of, summary_of


@pytest.mark.parametrize("name", NAMES)
def test_each_is_sound_and_passes_its_own_tests(name: str) -> None:
    policy = Policy.named(name)
    assert (policy.name, policy.lint()) == (name, [])
    assert policy.tests
    judge = Judge(policy)
    for test in policy.tests:
        assert judge.decide(test.kind, test.target).allowed == (test.expect == "allow"), test
    assert 20 < len(summary_of(name)) < 90


def test_the_closed_one_is_the_default() -> None:
    assert Policy.named("closed").digest == Policy().digest


def test_none_opens_files_or_secrets_of_the_host() -> None:
    for name in NAMES:
        policy = Policy.named(name)
        assert (policy.filesystem.mounts, policy.secrets, policy.backend) == ((), (), "auto")
    assert [name for name in NAMES if Policy.named(name).network.allow] == ["web-reader"]


def test_every_file_is_listed() -> None:
    folder = Path(fumehood.__file__).parent / "policy/named"
    assert sorted(path.stem for path in folder.glob("*.yaml")) == sorted(NAMES)


def test_a_name_is_taken_wherever_a_policy_is() -> None:
    assert read_policy("build") == Policy.named("build")
    assert fumehood.run("print(1)", policy="closed").stdout == "1\n"


def test_a_file_of_the_current_folder_does_not_take_the_place_of_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("closed", "closed.yaml", "other"):
        (tmp_path / name).write_text("resources: {memory: 1G}\n")
    assert read_policy("closed").digest == Policy().digest
    assert read_policy("./closed").resources.memory == 1024**3
    assert read_policy("closed.yaml").resources.memory == 1024**3
    assert read_policy(Path("closed")).resources.memory == 1024**3
    with pytest.raises(UsageError, match="no policy with this name comes with the package"):
        read_policy("other")


def test_an_unknown_name_is_told_with_the_nearest() -> None:
    with pytest.raises(
        UsageError, match=r"--policy 'Data-sience': .*did you mean 'data-science'.*such as \./Data-sience"
    ):
        file_of("Data-sience", "--policy")
    with pytest.raises(UsageError, match=r"Policy.load\(path\) reads a file"):
        Policy.named("x.yaml")
