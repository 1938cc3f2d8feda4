"""The options of `hood agent`, and the agent that they describe."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, cast

from fumehood.cli import overrides, policy_choice
from fumehood.cli.artifacts import check_folder, let_out
from fumehood.errors import UsageError

if TYPE_CHECKING:
    from fumehood.agents import ApprovalSettings, AssistantAgent, ModelReviewer
    from fumehood.policy import Policy
    from fumehood.tools import Tool

_NAME = "agent"
_TOOLS_HELP = "of python, shell, read_file, write_file, edit_file, list_files, processes, ports (default: all)"
_INSTRUCTIONS = """\
You solve the user's task with the tools you have. Code and commands run in a sandbox in which little is allowed; \
denials come with the reason. Do not try the same again: find another way, or say what would be needed. \
Files that the user is to get belong in out/. Say in the end, in few words, what came out."""


class Arguments(overrides.Arguments):
    verb: str
    task: str
    model: str | None
    tools: str | None
    instructions: str | None
    turns: int
    calls: int
    tokens: int | None
    cost: float | None
    seconds: str | None
    session: bool
    out: str | None
    state: str | None
    pause: bool
    reviewer: str | None
    json: bool


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--model", metavar="NAME", help="which model to ask")
    overrides.add_options(parser, variables=False)
    add("--tools", metavar="LIST", help=_TOOLS_HELP)
    add("--instructions", metavar="FILE", help="the first message to the model, instead of ours")
    add("--turns", type=int, default=50, metavar="N", help="ask the model at most N times (50)")
    add("--calls", type=int, default=200, metavar="N", help="at most N calls of tools (200)")
    add("--tokens", type=int, metavar="N", help="at most N tokens, read and written")
    add("--cost", type=float, metavar="USD", help="at most so many dollars")
    add("--seconds", metavar="N", help="at most N seconds; also 90s, 2m")
    add("--session", action="store_true", help="keep Python's state between calls, and show figures")
    add("--out", metavar="DIR", help="save what filesystem.outputs names, and figures; all files if no policy is given")
    add("--state", metavar="FILE", help="keep the conversation there, and go on with it")
    add("--pause", action="store_true", help="do not wait for approvals: stop, keep --state, and `resume` later")
    add("--reviewer", metavar="NAME", help="a model that answers approvals where the policy has `reviewer: true`")
    add("--json", action="store_true", help="print everything that happens as JSON, one event a line")


def make_agent(chosen: Arguments, approvals: ApprovalSettings) -> AssistantAgent:
    from fumehood.agents import AssistantAgent, Budget
    from fumehood.agents.models.names import usual_model

    model = chosen.model or usual_model(os.environ)
    if model is None:
        raise UsageError(
            "there is no model to ask: set ANTHROPIC_API_KEY or OPENAI_API_KEY, or say --model, such as "
            "--model ollama:qwen3; `hood agent run --help` has the names"
        )
    if chosen.pause and chosen.state is None:
        raise UsageError("--pause needs --state FILE, where the task is kept until it goes on")
    check_folder(chosen.out, may_hold_files=True)
    policy = let_out(overrides.load_policy(chosen), chosen.out, has_file=chosen.policy is not None)
    policy_choice.tell(chosen)
    if chosen.reviewer is not None and not any(rule.reviewer for rule in policy.approvals):
        raise UsageError("--reviewer has nothing to answer: no rule in approvals of the policy has `reviewer: true`")
    return AssistantAgent(
        _NAME,
        model,
        tools=_tools(chosen.tools, policy),
        policy=policy,
        instructions=_instructions(chosen.instructions),
        approvals=approvals,
        budget=Budget(chosen.turns, chosen.tokens, chosen.cost, chosen.seconds, chosen.calls),
        session=chosen.session,
        out=chosen.out,
    )


def _tools(names: str | None, policy: Policy) -> tuple[Tool, ...]:
    from fumehood.tools import STANDARD, change_tools, port_tools, process_tools

    known: dict[str, tuple[Tool, ...]] = {tool.name: (tool,) for tool in STANDARD}
    known |= {"changes": change_tools(), "processes": process_tools(), "ports": port_tools(policy)}
    wanted = list(known) if names is None else [name for name in names.split(",") if name]
    for name in wanted:
        if name not in known:
            raise UsageError(f"--tools: there is no tool {name!r}; the tools are {', '.join(known)}")
    return tuple(tool for name in dict.fromkeys(wanted) for tool in known[name])


def make_reviewer(chosen: Arguments) -> ModelReviewer | None:
    """Has the limits of the agent, for itself."""
    from fumehood.agents import Budget, ModelReviewer

    if chosen.reviewer is None:
        return None
    return ModelReviewer(chosen.reviewer, budget=Budget(chosen.calls, chosen.tokens, chosen.cost))


def _instructions(path: str | None) -> str:
    if path is None:
        return _INSTRUCTIONS
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--instructions {path!r} cannot be read: {error}") from None


def load_state(agent: AssistantAgent, path: str | None) -> None:
    """A file that is not there yet is a conversation that has not begun."""
    if path is None or not os.path.exists(path):
        return
    try:
        data: object = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"--state {path!r} cannot be read: {error}") from None
    if not isinstance(data, dict):
        raise UsageError(f"--state {path!r} holds no state of an agent")
    agent.load_state(cast("dict[str, object]", data))


def save_state(agent: AssistantAgent, path: str | None) -> None:
    """Whole or not at all, and for its owner alone: it holds all that was said."""
    if path is None:
        return
    draft = f"{path}.new"
    try:
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(handle, "w", encoding="utf-8") as stream:
            json.dump(agent.save_state(), stream)
        os.replace(draft, path)
    except OSError as error:
        raise UsageError(f"--state {path!r} cannot be written: {error.strerror}") from error
