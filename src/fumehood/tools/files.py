"""The tools for files of the sandbox: read, write, edit, list.

What a model reads is shown to it as output is, not handed out as a file: `filesystem.outputs` is about the latter. So
reading and editing are small programs that run inside, with the rights of any program there.
"""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import Field

from fumehood.errors import SandboxError
from fumehood.policy import format_size
from fumehood.results import RunResult
from fumehood.tools.result import LongText, ToolOutput, ToolStatus, describe_run
from fumehood.tools.source import apart
from fumehood.tools.tool import Arguments, Risk, Tool, ToolContext

_MOST_ENTRIES = 500

Path = Annotated[str, Field(min_length=1, description="Relative to the workspace, or absolute inside the sandbox.")]


class ReadArguments(Arguments):
    path: Path
    first_line: Annotated[int, Field(ge=1, description="The first line to show, counted from 1.")] = 1
    lines: Annotated[int, Field(ge=1, le=10_000, description="How many lines to show.")] = 500


class WriteArguments(Arguments):
    path: Path
    content: Annotated[str, Field(description="All of the file's new content.")]


class EditArguments(Arguments):
    path: Path
    old: Annotated[str, Field(min_length=1, description="Text of the file, exactly, that occurs once.")]
    new: Annotated[str, Field(description="What takes its place.")]
    everywhere: Annotated[bool, Field(description="Replace every occurrence, however many there are.")] = False


class ListArguments(Arguments):
    path: Annotated[str, Field(description="A folder, relative to the workspace; the workspace itself by default.")] = (
        ""
    )


# Each takes its arguments as JSON on standard input and prints one JSON object: a text, or what is wrong.
_COMMON = """
import json, os, sys, tempfile
given = json.load(sys.stdin)
path = os.path.join("/workspace", given["path"])
def load():
    with open(path, "rb") as stream:
        data = stream.read()
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ValueError(f"it is not a text file ({len(data)} bytes)")
def answer(work):
    try:
        print(json.dumps({"text": work()}))
    except (OSError, ValueError) as error:
        print(json.dumps({"problem": getattr(error, "strerror", None) or str(error)}))
"""
_READ = f"""{_COMMON}
def work():
    lines = load().splitlines(keepends=True)
    first, last = given["first_line"], min(given["first_line"] - 1 + given["lines"], len(lines))
    if first > max(1, len(lines)):
        raise ValueError(f"it has only {{len(lines)}} lines")
    text = "".join(lines[first - 1:last])
    around = "" if (first, last) in ((1, len(lines)), (1, 0)) else f"[lines {{first}} to {{last}} of {{len(lines)}}]\\n"
    return around + text
answer(work)
"""
_EDIT = f"""{_COMMON}
def work():
    text = load()
    count = text.count(given["old"])
    if count == 0:
        raise ValueError("it does not contain the text in `old`; read the file and copy the text exactly")
    if count > 1 and not given["everywhere"]:
        hint = "give more of the text around it, or set everywhere"
        raise ValueError(f"it contains the text in `old` {{count}} times; {{hint}}")
    mode = os.stat(path).st_mode & 0o777
    real = os.path.realpath(path)
    handle, draft = tempfile.mkstemp(dir=os.path.dirname(real))
    with open(handle, "w", newline="") as stream:
        stream.write(text.replace(given["old"], given["new"]))
    os.chmod(draft, mode)
    os.replace(draft, real)
    return f"Replaced {{count}} time{{'' if count == 1 else 's'}}."
answer(work)
"""


async def _read(context: ToolContext, given: ReadArguments) -> ToolOutput:
    return await _ask(context, _READ, given, f"{given.path} cannot be read")


async def _edit(context: ToolContext, given: EditArguments) -> ToolOutput:
    return await _ask(context, _EDIT, given, f"{given.path} cannot be edited")


async def _ask(context: ToolContext, program: str, given: Arguments, failure: str) -> ToolOutput:
    result = await context.sandbox.run(apart(program), stdin=given.model_dump_json())
    if not result.ok:
        return describe_run(result)
    answer = _answer(result)
    if "problem" in answer:
        return ToolOutput(f"{failure}: {answer['problem']}.", ToolStatus.ERROR, result)
    return ToolOutput(LongText(answer["text"]) if answer["text"] else "The file is empty.", run=result)


def _answer(result: RunResult) -> dict[str, str]:
    """What came from inside, of which nothing is taken for granted."""
    try:
        answer = json.loads(result.stdout)
        (key,) = answer
        if key in ("text", "problem") and isinstance(answer[key], str):
            return answer
    except (ValueError, TypeError):
        pass
    raise SandboxError("the program that reads files in the sandbox gave no answer that makes sense")


async def _write(context: ToolContext, given: WriteArguments) -> ToolOutput:
    data = given.content.encode()
    await context.sandbox.files.write(given.path, data)
    return ToolOutput(f"Wrote {format_size(len(data))} to {given.path}.")


async def _list(context: ToolContext, given: ListArguments) -> ToolOutput:
    entries = await context.sandbox.files.list(given.path)
    lines = [f"{entry.kind.value:6} {format_size(entry.size):>8}  {entry.name}" for entry in entries[:_MOST_ENTRIES]]
    if len(entries) > _MOST_ENTRIES:
        lines.append(f"[... {len(entries) - _MOST_ENTRIES} more ...]")
    return ToolOutput("\n".join(lines).encode("utf-8", "replace").decode() or "The folder is empty.")


READ_FILE = Tool("read_file", "Show a text file of the sandbox.", ReadArguments, Risk.LOW, _read)
WRITE_FILE = Tool(
    "write_file",
    "Write a text file of the sandbox, in place of what it held; folders on the way are made.",
    WriteArguments,
    Risk.MEDIUM,
    _write,
    parallel=False,
)
EDIT_FILE = Tool(
    "edit_file",
    "Replace a piece of text in a file of the sandbox by another.",
    EditArguments,
    Risk.MEDIUM,
    _edit,
    parallel=False,
)
LIST_FILES = Tool("list_files", "List a folder of the sandbox: kind, size and name.", ListArguments, Risk.LOW, _list)
