"""A policy is enforced or refused: what a backend has no mechanism for keeps the sandbox from opening."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fumehood import (
    AsyncSandbox,
    DangerousPolicyWarning,
    DeniedError,
    FumehoodError,
    Policy,
    Sandbox,
    UnenforceableError,
)

# Keys whose enforcement is still to come; a backend that learns one of them moves it to tests of its own.
NOT_YET: dict[str, tuple[dict[str, object], str]] = {
    "approvals": ({"approvals": [{"tool": "shell", "when": "always"}]}, "approvals"),
}


@pytest.mark.parametrize(("sections", "control"), NOT_YET.values(), ids=NOT_YET.keys())
def test_a_control_without_a_mechanism_is_refused_by_name(
    make_policy: Callable[..., Policy], backend: str, sections: dict[str, object], control: str
) -> None:
    with pytest.raises(UnenforceableError) as caught, Sandbox(make_policy(**sections)):
        pytest.fail("it opened")
    assert (caught.value.control, caught.value.backend) == (control, backend)
    assert f"{control}: not enforced by backend {backend}: " in str(caught.value)
    assert caught.value.remedy in str(caught.value)
    assert isinstance(caught.value, DeniedError)


@pytest.mark.one_container
@pytest.mark.anyio
async def test_a_refused_sandbox_is_not_open(make_policy: Callable[..., Policy]) -> None:
    box = AsyncSandbox(make_policy(approvals=[{"tool": "shell"}]))
    with pytest.raises(UnenforceableError):
        await box.__aenter__()
    with pytest.raises(Exception, match="not open"):
        await box.run("pass")


def test_a_strict_policy_opens_only_where_every_control_is_whole(make_policy: Callable[..., Policy]) -> None:
    try:
        with Sandbox(make_policy(strict=True)) as box:
            said = box.run("print('strict')").stdout + " ".join(box.enforcement.values())
    except UnenforceableError as error:
        said = str(error)
    assert said.startswith("strict\n") == ("for each process" not in said)
    assert "strict" in said


def test_a_fraction_of_a_processor_is_held_or_refused(make_policy: Callable[..., Policy]) -> None:
    try:
        with Sandbox(make_policy(resources={"cpus": 0.5})) as box:
            said = box.enforcement["resources.cpus"] + box.run("print(': half')").stdout
    except UnenforceableError as error:
        said = str(error)
    assert said.endswith(": half\n") or said.startswith("resources.cpus: not enforced")


@pytest.mark.one_container
def test_a_module_that_cannot_be_preloaded_is_named(make_policy: Callable[..., Policy]) -> None:
    policy = make_policy(environment={"preload": ["no_such_module_here"]})
    with pytest.raises(FumehoodError, match="no_such_module_here"), Sandbox(policy):
        pytest.fail("it opened")


@pytest.mark.one_container
def test_naming_and_testing_a_policy_needs_no_mechanism(make_policy: Callable[..., Policy]) -> None:
    policy = make_policy(name="named", tests=[{"read": "/etc/shadow", "expect": "deny"}])
    with Sandbox(policy) as box:
        assert box.run("pass").ok


@pytest.mark.one_container
def test_whoever_opens_a_dangerous_policy_is_warned(make_policy: Callable[..., Policy]) -> None:
    policy = make_policy(network={"allow": [{"host": "*", "ports": [443]}]})
    with pytest.warns(DangerousPolicyWarning, match="opens every host"), Sandbox(policy):
        pass
