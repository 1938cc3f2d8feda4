"""The tools that clients see, with schemas and hints, and the Python sessions of one client, by name.

Running code in a session is the tool `python`, as it is without one: a rule of a policy that is about `python` is about
both, and no other name leads around it.
"""

from __future__ import annotations

from typing import Annotated, Any

from mcp_types import Tool as ToolDescription
from mcp_types import ToolAnnotations
from pydantic import Field

from fumehood.errors import UsageError
from fumehood.policy import Policy, format_duration, format_size
from fumehood.sandbox.interface import AnySession
from fumehood.tools import (
    EDIT_FILE,
    LIST_FILES,
    PYTHON,
    READ_FILE,
    SHELL,
    WRITE_FILE,
    Risk,
    Tool,
    ToolOutput,
    ToolStatus,
    change_tools,
    port_tools,
    process_tools,
)
from fumehood.tools.result import describe_run
from fumehood.tools.runs import PythonArguments, limits
from fumehood.tools.tool import Arguments, ToolContext

MOST_SESSIONS = 8
_NAME = r"^[A-Za-z0-9_.-]{1,64}$"
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
    "start_process": "Start a process",
    "read_process": "Read a process's output",
    "write_process": "Write to a process",
    "stop_process": "Stop a process",
    "expose_port": "Publish a port",
    "changed_files": "See which files have changed",
}
_READS = (READ_FILE.name, LIST_FILES.name)
_ADDS = ("start_session", "read_process", "expose_port", "changed_files")
_REPEATABLE = (WRITE_FILE.name, "reset_session")
_RUNS = (PYTHON.name, SHELL.name, "start_process", "write_process")

OUTPUT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "status": {
            "type": "string",
            "enum": [status.value for status in ToolStatus],
            "description": "denied: the policy or a person said no, and nothing was done",
        },
        "text": {"type": "string", "description": "What happened, in words"},
        "run": {
            "type": "object",
            "description": "Of a program that was run",
            "properties": {
                "id": {"type": "string"},
                "status": {"type": "string"},
                "cause": {"type": "string", "description": "What ended it: exit, wall_time, memory, ..."},
                "exit_code": {"type": "integer"},
                "duration_ms": {"type": "number"},
                "truncated": {"type": "boolean"},
            },
        },
        "files": {
            "type": "array",
            "description": "What it made that may be read as a resource",
            "items": {
                "type": "object",
                "properties": {
                    "uri": {"type": "string"},
                    "path": {"type": "string"},
                    "bytes": {"type": "integer"},
                    "media_type": {"type": "string"},
                },
            },
        },
        "denials": {"type": "array", "description": "What the policy refused it", "items": {"type": "string"}},
    },
    "required": ["status", "text"],
}

Name = Annotated[str, Field(pattern=_NAME, description="The session's name.")]


class SessionPythonArguments(PythonArguments):
    session: Annotated[
        str | None,
        Field(pattern=_NAME, description="A session that start_session opened; without one the code starts afresh."),
    ] = None


class SessionArguments(Arguments):
    session: Name


class NewSessionArguments(Arguments):
    session: Name = "main"


class Sessions:
    def __init__(self) -> None:
        self._open: dict[str, AnySession] = {}

    def tools(self) -> tuple[Tool, ...]:
        return (
            Tool(
                PYTHON.name,
                f"{PYTHON.description} With `session`, variables and imports are kept too, and the value of the last "
                "expression and figures are shown.",
                SessionPythonArguments,
                PYTHON.risk,
                self._run,
                is_recorded_first=True,
            ),
            Tool(
                "start_session",
                "Open a Python session: what runs in it finds the variables and imports of what ran before.",
                NewSessionArguments,
                Risk.MEDIUM,
                self._start,
            ),
            Tool(
                "reset_session",
                "Begin a Python session anew, without its state; ends what runs in it.",
                SessionArguments,
                Risk.MEDIUM,
                self._reset,
            ),
            Tool(
                "close_session",
                "Close a Python session and forget its state; ends what runs in it.",
                SessionArguments,
                Risk.MEDIUM,
                self._close,
            ),
        )

    async def close(self) -> None:
        while self._open:
            await self._open.popitem()[1].close()

    async def _run(self, context: ToolContext, given: SessionPythonArguments) -> ToolOutput:
        session = None if given.session is None else self._find(given.session)
        options = limits(context.sandbox, given.timeout)
        return describe_run(await context.run(given.code, session=session, **options))

    async def _start(self, context: ToolContext, given: NewSessionArguments) -> ToolOutput:
        if given.session in self._open:
            raise UsageError(f"there is a session {given.session!r} already; use it, or reset_session")
        if len(self._open) >= MOST_SESSIONS:
            raise UsageError(f"there are {MOST_SESSIONS} sessions already, which is the most; close_session one")
        session = self._open[given.session] = context.sandbox.session()
        try:
            await session.__aenter__()
        except BaseException:
            self._open.pop(given.session, None)
            raise
        return ToolOutput(f"Session {given.session} is open. Run code in it with python and session={given.session!r}.")

    async def _reset(self, context: ToolContext, given: SessionArguments) -> ToolOutput:
        await self._find(given.session).restart()
        return ToolOutput(f"Session {given.session} begins anew, without its state.")

    async def _close(self, context: ToolContext, given: SessionArguments) -> ToolOutput:
        session = self._find(given.session)
        del self._open[given.session]
        await session.close()
        return ToolOutput(f"Session {given.session} is closed.")

    def _find(self, name: str) -> AnySession:
        if name in self._open:
            return self._open[name]
        names = ", ".join(sorted(self._open)) or "none"
        raise UsageError(f"there is no session {name!r}; open it with start_session first. Open are: {names}")


def all_tools(sessions: Sessions, policy: Policy) -> tuple[Tool, ...]:
    python, *others = sessions.tools()
    files = (READ_FILE, WRITE_FILE, EDIT_FILE, LIST_FILES, *change_tools())
    return (python, SHELL, *files, *others, *process_tools(), *port_tools(policy))


def describe(policy: Policy) -> list[ToolDescription]:
    return [_described(tool, policy) for tool in all_tools(Sessions(), policy)]


def instructions(policy: Policy) -> str:
    """A description of the sandbox, without the host, for the system prompt of the client's model."""
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
