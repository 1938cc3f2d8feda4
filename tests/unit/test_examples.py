"""The policies in examples/policies: their tests hold, and would notice if one said something else."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from live.loaded_hood import run_python

from fumehood import Policy
from fumehood.cli.entry import run_command
from fumehood.policy.decisions import run_tests

FOLDER = Path(__file__).parents[2] / "examples" / "policies"
FILES = sorted(FOLDER.glob("*.yaml"))
NAMES = {"deny-all", "analyst", "web-reader", "package-builder", "internal-db"}
ANYWHERE = {"host": "*", "ports": [22, 80, 443, 5432]}
ANY_ADDRESS = {"host": "0.0.0.0/0", "ports": [22, 80, 443, 5432], "private": True}


def test_the_tests_of_all_examples_hold(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["policy", "test", str(FOLDER)]) == 0
    assert f"{len(FILES)} policies" in capsys.readouterr().out.splitlines()[-1]


def test_the_examples_are_there_under_their_names() -> None:
    assert {path.stem for path in FILES} >= NAMES
    assert [path.stem for path in FILES] == [Policy.load(path).name for path in FILES]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_example_has_no_dangerous_choice(path: Path) -> None:
    assert [finding for finding in Policy.load(path).lint() if finding.level == "danger"] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_example_has_tests_of_what_it_denies(path: Path) -> None:
    expected = [test.expect for test in Policy.load(path).tests]
    assert expected.count("deny") >= 8
    assert expected.count("allow") >= 3


def changes(policy: Policy) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each one thing that somebody could get wrong in the policy."""
    rules = [rule.model_dump(exclude_none=True) for rule in policy.network.allow]
    mounts = [mount.model_dump() for mount in policy.filesystem.mounts]
    for extra in (ANYWHERE, ANY_ADDRESS):
        yield f"opens {extra['host']}", {"network": {"allow": [*rules, extra]}}
    for index, rule in enumerate(rules):
        others = rules[:index] + rules[index + 1 :]
        yield f"lacks rule {index}", {"network": {"allow": others}}
        port = 80 if policy.network.allow[index].narrows_requests else 22
        wider = {**rule, "ports": [port, *rule["ports"]]}
        yield f"opens port {port} in rule {index}", {"network": {"allow": [*others, wider]}}
        for key in sorted({"methods", "paths"} & set(rule)):
            without = {name: value for name, value in rule.items() if name != key}
            yield f"has any {key} in rule {index}", {"network": {"allow": [*others, without]}}
    for index, mount in enumerate(mounts):
        others = mounts[:index] + mounts[index + 1 :]
        yield f"lacks mount {index}", {"filesystem": {"mounts": others}}
        yield f"can write to mount {index}", {"filesystem": {"mounts": [*others, {**mount, "mode": "rw"}]}}
    home = {"source": "/root", "target": "/root"}
    yield "shows a home", {"filesystem": {"mounts": [*mounts, home]}}
    if not policy.commands.is_open:
        yield "allows any command", {"commands": {"allow": None}}
        yield "allows no command", {"commands": {"allow": []}}
        for rule in policy.commands.deny:
            yield f"allows {rule}", {"commands": {"allow": [*(policy.commands.allow or ()), rule], "deny": []}}


MISTAKES = [(path, what, change) for path in FILES for what, change in changes(Policy.load(path))]
TITLES = [f"{path.stem} {what}" for path, what, _ in MISTAKES]


@pytest.mark.parametrize(("path", "change"), [(path, change) for path, _, change in MISTAKES], ids=TITLES)
def test_the_tests_of_an_example_notice_a_mistake(path: Path, change: dict[str, Any]) -> None:
    changed = Policy.load(path).override(change)
    assert not all(result.passed for result in run_tests(changed))


EXAMPLES = FOLDER.parent


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("agent/analyst.py", "usage: "),
        ("analyst/analyse.py", "usage: "),
        ("agent/web_reader.py", "set GITHUB_TOKEN"),
    ],
)
def test_a_program_without_what_it_needs_says_so_in_one_line(program: str, said: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "GITHUB_TOKEN"}
    done = run_python(EXAMPLES / program, env=environment)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith(said)
