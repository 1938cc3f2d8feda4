"""Keys of a policy are found again in the file, whatever order the model keeps them in."""

from __future__ import annotations

from pathlib import Path

import pytest

from fumehood import Policy, PolicyError
from fumehood.policy.file import PolicyFile

TEXT = """\
version: 1
filesystem:
  mounts:
    - {source: b, target: /z}
    - source: a
      target: //a/
network:
  allow:
    - {host: example.com, ports: [443]}
    -
      host: example.org
      ports: [443]
commands:
  allow:
    - ls
    - git status
  deny: [rm,
    git push]
tests:
  - {read: /z, expect: allow}

  - {read: /y, expect: deny}
"""


@pytest.fixture
def file(tmp_path: Path) -> PolicyFile:
    (tmp_path / "p.yaml").write_text(TEXT)
    return PolicyFile.load(tmp_path / "p.yaml")


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("version", 1),
        ("filesystem.mounts", 3),
        ("filesystem.mounts[/z]", 4),
        ("filesystem.mounts[/a]", 5),
        ("network.allow[0]", 9),
        ("network.allow[1]", 11),
        ("commands.allow[ls]", 15),
        ("commands.allow[git status]", 16),
        ("commands.deny[rm]", 17),
        ("commands.deny[git push]", 18),
        ("tests[0]", 20),
        ("tests[1]", 22),
        ("resources.memory", None),
        ("network.allow[2]", None),
    ],
)
def test_a_key_has_the_line_where_it_stands(file: PolicyFile, key: str, line: int | None) -> None:
    assert file.line_of(key) == line


def test_a_place_says_whether_the_file_has_the_key_at_all(file: PolicyFile) -> None:
    assert file.place_of("network.allow[0]") == f"network.allow[0] ({file.name}:9)"
    assert file.place_of("resources.memory") == f"resources.memory (not in {file.name})"


def test_the_policy_is_the_one_that_loading_gives(file: PolicyFile) -> None:
    assert file.policy == Policy.load(file.name)


def test_mistakes_are_those_of_loading(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("filesystem: {mounts: [{target: 5}, 3]}\ncommands: {allow: 7}\n")
    with pytest.raises(PolicyError) as caught:
        PolicyFile.load(tmp_path / "p.yaml")
    with pytest.raises(PolicyError) as expected:
        Policy.load(tmp_path / "p.yaml")
    assert caught.value.problems == expected.value.problems
