"""A keyword that a function does not have is an error with the nearest one, wherever a user can write one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import fumehood
from fumehood import AsyncSandbox, AsyncSession, Policy, Sandbox, Session, UnknownKeywordError
from fumehood.agents import (
    ApprovalSettings,
    AssistantAgent,
    Budget,
    OldestFirst,
    RecordingModel,
    ReplayModel,
    ScriptedModel,
    find_model,
)
from fumehood.agents.teams import (
    CodingPair,
    HandedTo,
    HandoffTeam,
    MaxMessages,
    RoundRobinTeam,
    SelectorTeam,
    Spent,
    TextMention,
    Timeout,
    ToolUsed,
    code_executor,
)
from fumehood.runtime import LocalRuntime, MessageContext, RuntimeLimits, SerialisingRuntime
from fumehood.sandbox.request import RunOptions
from fumehood.tools import PYTHON, Tool, Toolbox, tool
from fumehood.tools.approvals import ApprovalAnswer, Approvals, ApprovalStore
from fumehood.tools.filters import Pipeline

RUNS: dict[str, Callable[..., Any]] = {
    "fumehood.run": fumehood.run,
    "AsyncSandbox.run": AsyncSandbox().run,
    "AsyncSandbox.stream": AsyncSandbox().stream,
    "AsyncSandbox.start": AsyncSandbox().start,
    "AsyncSession.run": AsyncSandbox().session().run,
    "AsyncSession.stream": AsyncSandbox().session().stream,
}


@pytest.mark.parametrize("name", RUNS)
def test_a_mistyped_option_of_a_run_is_refused_with_the_nearest(name: str) -> None:
    with pytest.raises(UnknownKeywordError, match=r"\(\) has no keyword 'timout': did you mean 'timeout'\?"):
        RUNS[name]("print(1)", timout=1)


@pytest.mark.parametrize("name", RUNS)
def test_a_limit_is_refused_with_its_place_in_the_policy(name: str) -> None:
    with pytest.raises(
        UnknownKeywordError, match=r"limits are the policy's, such as Policy\(resources=\{'memory': \.\.\.\}\)"
    ):
        RUNS[name]("print(1)", memory="64M")


def test_the_blocking_methods_refuse_the_same() -> None:
    with Sandbox() as box, box.session() as session:
        for method in (box.run, box.start, session.run):
            with pytest.raises(UnknownKeywordError, match="did you mean 'timeout'"):
                method("print(1)", timout=1)
        with pytest.raises(UnknownKeywordError, match="did you mean 'timeout'"):
            list(box.stream("print(1)", timout=1))


@pytest.mark.parametrize("kind", [AsyncSandbox, Sandbox])
def test_a_sandbox_refuses_what_it_does_not_take(kind: Callable[..., Any]) -> None:
    with pytest.raises(UnknownKeywordError, match=r"Sandbox\(\) has no keyword 'polcy': did you mean 'policy'\?"):
        kind(polcy=Policy())
    with pytest.raises(UnknownKeywordError, match=r"belongs to the policy, such as Policy\(network=\.\.\.\)"):
        kind(network={})


MISTYPED: list[tuple[Callable[..., Any], str, str]] = [
    (AssistantAgent, "instruction", "instructions"),
    (Budget, "turn", "turns"),
    (ApprovalSettings, "pause", "pauses"),
    (OldestFirst, "token", "tokens"),
    (ScriptedModel, "nmae", "name"),
    (RecordingModel, "secret", "secrets"),
    (ReplayModel, "secret", "secrets"),
    (find_model, "apikey", "api_key"),
    (RoundRobinTeam, "terminaton", "termination"),
    (HandoffTeam, "terminaton", "termination"),
    (SelectorTeam, "terminaton", "termination"),
    (CodingPair, "terminaton", "termination"),
    (CodingPair, "polcy", "policy"),
    (code_executor, "polcy", "policy"),
    (MaxMessages, "mots", "most"),
    (TextMention, "txt", "text"),
    (Timeout, "second", "seconds"),
    (Spent, "buget", "budget"),
    (HandedTo, "traget", "target"),
    (ToolUsed, "tol", "tool"),
    (RuntimeLimits, "handler", "handlers"),
    (LocalRuntime, "limit", "limits"),
    (SerialisingRuntime, "limit", "limits"),
    (LocalRuntime.register, "grant", "grants"),
    (LocalRuntime.send, "dealine", "deadline"),
    (LocalRuntime.publish, "dealine", "deadline"),
    (LocalRuntime.stop, "drian", "drain"),
    (MessageContext.send, "dealine", "deadline"),
    (MessageContext.publish, "dealine", "deadline"),
    (MessageContext.toolbox, "sesion", "session"),
    (Toolbox, "gates", "gate"),
    (Tool, "paralel", "parallel"),
    (tool, "paralel", "parallel"),
    (Approvals, "stroe", "store"),
    (ApprovalStore, "floder", "folder"),
    (ApprovalAnswer, "reson", "reason"),
    (Pipeline, "secret", "secrets"),
]


@pytest.mark.parametrize(
    ("function", "given", "meant"), MISTYPED, ids=[f"{each[0].__qualname__} {each[1]}" for each in MISTYPED]
)
def test_a_mistyped_keyword_is_refused_with_the_nearest(function: Callable[..., Any], given: str, meant: str) -> None:
    words = rf"^{function.__qualname__}\(\) has no keyword '{given}': did you mean '{meant}'\?$"
    with pytest.raises(UnknownKeywordError, match=words):
        function(**{given: None})


@pytest.mark.parametrize("kind", [AssistantAgent, CodingPair, code_executor])
def test_an_agent_is_told_where_a_limit_belongs(kind: Callable[..., Any]) -> None:
    with pytest.raises(UnknownKeywordError, match=r"such as Policy\(resources=\{'memory': \.\.\.\}\)"):
        kind(memory="64M")


def test_what_has_no_name_is_asked_for_without_it() -> None:
    with pytest.raises(UnknownKeywordError, match=r"Toolbox\(\) has no keyword 'tools': give it without its name"):
        Toolbox(AsyncSandbox(), tools=[PYTHON])  # type: ignore[call-arg]


def test_it_is_a_type_error_as_for_every_python_function() -> None:
    with pytest.raises(TypeError):
        fumehood.run("1", nonsense=1)


@pytest.mark.parametrize(
    "function",
    [
        fumehood.run,
        AsyncSandbox.run,
        AsyncSandbox.stream,
        AsyncSandbox.start,
        AsyncSession.run,
        Sandbox.run,
        Session.run,
    ],
)
def test_help_shows_every_option(function: Callable[..., Any]) -> None:
    shown = inspect.signature(function).parameters
    assert set(RunOptions.__annotations__) <= set(shown)
    assert not any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in shown.values())
    assert (shown["language"].default, shown["timeout"].default) == ("python", None)


def test_dir_lists_the_public_names() -> None:
    assert set(fumehood.__all__) <= set(dir(fumehood))
    assert {"import_module", "annotations"}.isdisjoint(dir(fumehood))
