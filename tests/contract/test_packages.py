"""`packages=`: beside those of the policy, checked before anything starts, on every backend."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from live.package_index import make_wheel, open_index

from fumehood import Policy, Sandbox, UsageError, run

pytestmark = pytest.mark.one_container

GREETER = make_wheel("greeter", {"greeter.py": "WORD = 'hello'\n"})
OTHER = make_wheel("other", {"other.py": "WORD = 'there'\n"})


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUMEHOOD_HOME", str(tmp_path / "hood"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def test_packages_come_beside_those_of_the_policy(make_policy: Callable[..., Policy]) -> None:
    code = "import greeter, other; print(greeter.WORD, other.WORD)"
    with open_index(GREETER, OTHER) as index:
        policy = make_policy(environment={"packages": ["other"], "index": index.url})
        with Sandbox(policy, packages=["greeter"]) as box:
            assert box.run(code).stdout == "hello there\n"
            assert box.policy.environment.packages == ("greeter", "other")
        assert run(code, policy, packages=("greeter",)).stdout == "hello there\n"


@pytest.mark.parametrize("packages", ["pandas", ["x @ https://evil.example/x"], ["-r x"], [""], [7], 7])
def test_packages_that_make_no_sense_are_refused(make_policy: Callable[..., Policy], packages: list[str]) -> None:
    with pytest.raises(UsageError, match="packages"):
        Sandbox(make_policy(), packages=packages)
    with pytest.raises(UsageError, match="packages"):
        run("1", make_policy(), packages=packages)


def test_a_missing_module_is_answered_with_the_package_to_add(make_policy: Callable[..., Policy]) -> None:
    result = run("import no_such_package_here", make_policy())
    assert result.detail == (
        "there is no module no_such_package_here in the sandbox; add packages=['no_such_package_here']"
    )
