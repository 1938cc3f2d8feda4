"""The tools as clients see them: schemas, and hints on what a call can do."""

from __future__ import annotations

from mcp_types import Tool as ToolDescription
from mcp_types import ToolAnnotations

from fumehood.integrations.mcp.place import tools
from fumehood.integrations.mcp.results import OUTPUT_SCHEMA
from fumehood.integrations.mcp.sessions import Sessions
from fumehood.policy import Policy, format_duration, format_size
from fumehood.tools import EDIT_FILE, LIST_FILES, PYTHON, READ_FILE, SHELL, WRITE_FILE, Tool

_TITLES = {
    PYTHON.name: "Run Python",
    SHELL.name: "Run a shell command",
    READ_FILE.name: "Read a file",
    WRITE_FILE.name: "Write a file",
    EDIT_FILE.name: "Edit a file",
    LIST_FILES.name: "List files",
    "start_session": "Start a Python session",
    "reset_session": "Reset a Python session",
    "close_session": "Close a Python session",
}
_READS = (READ_FILE.name, LIST_FILES.name)
_ADDS = ("start_session",)
_REPEATABLE = (WRITE_FILE.name, "reset_session")
_RUNS = (PYTHON.name, SHELL.name)


def describe(policy: Policy) -> list[ToolDescription]:
    return [_described(tool, policy) for tool in tools(Sessions())]


def instructions(policy: Policy) -> str:
    """For the model, in the client's system prompt: what the place is like, and nothing of the host's."""
    limits = policy.resources
    lines = [
        "Code, commands and files of these tools are in an isolated Linux sandbox that belongs to this connection.",
        "Files in /workspace are kept until it ends. Nothing of the user's machine is there unless it was mounted.",
        "Network: " + ("only what the policy allows." if policy.network.allow else "none."),
        f"Each run may take {format_duration(limits.timeout)} and {format_size(limits.memory)} of memory.",
        "A refusal says what was refused and why. Do not try to get around it; tell the user.",
    ]
    if policy.filesystem.outputs:
        names = ", ".join(policy.filesystem.outputs)
        lines.append(f"Files in /workspace that match {names} can be read by the user, as resources.")
    if policy.approvals:
        lines.append("Some calls wait until a person has approved them.")
    return "\n".join(lines)


def _described(tool: Tool, policy: Policy) -> ToolDescription:
    schema = tool.schema(policy)
    reads = tool.name in _READS
    return ToolDescription(
        name=tool.name,
        title=_TITLES[tool.name],
        description=schema["description"],
        input_schema=schema["parameters"],
        output_schema=OUTPUT_SCHEMA,
        annotations=ToolAnnotations(
            title=_TITLES[tool.name],
            read_only_hint=reads,
            destructive_hint=not reads and tool.name not in _ADDS,
            idempotent_hint=reads or tool.name in _REPEATABLE,
            open_world_hint=tool.name in _RUNS and bool(policy.network.allow),
        ),
    )
