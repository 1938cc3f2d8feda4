"""Runs the pieces of code in a document.

python    all blocks of a document in one namespace, in order; top-level `await` works
console   lines after `$ ` (continued with `> `) go to one shell for each block; what follows must be what they print,
          where `...` stands for anything
The comment `<!-- not executed: REASON -->` right before a block excuses it; `<!-- file: NAME -->` puts the block's text
where the other blocks of that document find it, beside a copy of examples/.
"""

from __future__ import annotations

import atexit
import doctest
import os
import re
import secrets
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from live.loaded_hood import Kind, handover
from live.loaded_hood import run_python as run_program

ROOT = Path(__file__).parents[1]
# In these `hood` and `python` start as they do for everybody.
FROM_NOTHING = ("README.md", "docs/tutorial/first-run.md", "docs/keeper.md")
# What their code imports takes seconds.
KINDS: dict[str, Kind] = {"docs/integrations.md": "frameworks", "docs/mcp.md": "mcp"}
ALIASES = {"sh": "console", "bash": "console", "shell": "console", "py": "python", "python3": "python"}
FENCE = re.compile(
    r"(?:^[ ]*<!--[ ]*(?P<verb>not executed|file):?(?P<text>.*?)-->[ ]*\n\n?)?"
    r"^(?P<indent>[ ]*)```(?P<language>[\w-]*)[^\n]*\n(?P<body>.*?)^(?P=indent)```[ ]*$",
    re.MULTILINE | re.DOTALL,
)

# The blocks arrive as text, line numbers and all, so that a traceback points into the document.
RUNNER = """
import ast, asyncio, inspect, sys
name, namespace = sys.argv[1], {"__name__": "__main__"}
code = compile(sys.stdin.read(), name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
result = eval(code, namespace)
if inspect.iscoroutine(result):
    asyncio.run(result)
"""


@dataclass(frozen=True)
class Block:
    language: str
    line: int
    text: str
    verb: str
    argument: str


@dataclass(frozen=True)
class Command:
    line: int
    text: str
    expected: str


def read(document: str) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


def blocks_of(text: str) -> list[Block]:
    return [
        Block(
            language=match["language"],
            line=text.count("\n", 0, match.start("body")) + 1,
            text=re.sub(rf"^{match['indent']}", "", match["body"], flags=re.MULTILINE),
            verb=match["verb"] or "",
            argument=(match["text"] or "").strip(),
        )
        for match in FENCE.finditer(text)
    ]


def executed(blocks: list[Block], language: str) -> list[Block]:
    return [block for block in blocks if block.language == language and not block.verb]


def misleading_blocks(blocks: list[Block]) -> list[str]:
    """Name the blocks that look like code but that no test would run."""
    unrun = [
        f"line {block.line}: a {block.language} block is not run; write it as {ALIASES[block.language]}"
        for block in blocks
        if block.language in ALIASES and not block.verb
    ]
    unexplained = [
        f"line {block.line}: `<!-- {block.verb}: ... -->` needs a {'file name' if block.verb == 'file' else 'reason'}"
        for block in blocks
        if block.verb and not block.argument
    ]
    return unrun + unexplained


def prepare_folder(folder: Path, blocks: list[Block]) -> None:
    if (ROOT / "examples").is_dir():
        shutil.copytree(ROOT / "examples", folder / "examples")
        (folder / "docs").mkdir()
        shutil.copy(ROOT / "docs" / "performance.md", folder / "docs")  # which examples/scale reads
    for block in blocks:
        if block.verb == "file":
            target = folder / block.argument
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.text, encoding="utf-8")


@cache
def quick_hood() -> str:
    """A folder with a `hood` and a `python` that are forked from a process which has done its imports."""
    folder = Path(tempfile.mkdtemp(prefix="hood-docs-"))
    atexit.register(shutil.rmtree, folder)
    real = Path(sys.executable).with_name("hood")
    hood = f"""#!/bin/sh
[ "$FUMEHOOD_KEEPER" = off ] || exec {real} "$@"
[ "$1" = mcp ] && exec {shlex.join(handover("mcp"))} "$@"
exec {shlex.join(handover())} "$@"
"""
    python = f"""#!/bin/sh
case "$1" in *.py) exec {shlex.join(handover("frameworks", "python"))} "$@" ;; esac
exec {sys.executable} "$@"
"""
    for name, text in {"hood": hood, "python": python}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return str(folder)


def environment(folder: Path, document: str) -> dict[str, str]:
    """A reader's: the tools on the way, and a log with nothing of anybody else's in it."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    if not document.startswith(FROM_NOTHING):
        path = f"{quick_hood()}:{path}"
    log = {"FUMEHOOD_AUDIT": f"{folder}.audit", "FUMEHOOD_APPROVALS": f"{folder}.approvals"}
    log |= {"FUMEHOOD_TRUST": f"{folder}.trust", "FUMEHOOD_SANDBOXES": f"{folder}.sandboxes"}
    log |= {"FUMEHOOD_SERVER_STATE": f"{folder}.server"}
    # No document asks a model of anybody's for anything.
    kept = {name: value for name, value in os.environ.items() if not name.endswith(("_API_KEY", "FUMEHOOD_MODEL"))}
    return {**kept, **log, "PATH": path, "NO_COLOR": "1", "COLUMNS": "120"}


def run_python(blocks: list[Block], *, name: str, folder: Path) -> str | None:
    """Run the blocks as one program; say what went wrong, or None."""
    source = ""
    for block in blocks:
        source += "\n" * (block.line - 1 - source.count("\n")) + block.text
    place = {"cwd": folder, "env": environment(folder, name), "timeout": 240}
    if name.startswith(FROM_NOTHING):
        command = [sys.executable, "-c", RUNNER, name]
        run = subprocess.run(command, input=source, capture_output=True, text=True, **place)
    else:
        run = run_program("-c", RUNNER, name, given=source, kind=KINDS.get(name, "hood"), **place)
    return None if run.returncode == 0 else f"python in {name} exited with {run.returncode}:\n{run.stdout}{run.stderr}"


def commands_of(block: Block) -> list[Command]:
    lines = block.text.splitlines()
    commands: list[Command] = []
    for number, line in enumerate(lines, block.line):
        if line.startswith("$ "):
            commands.append(Command(number, line[2:], ""))
            continue
        assert commands, f"line {number}: a console block starts with a line that starts with `$ `"
        last = commands[-1]
        if line.startswith("> ") and not last.expected:
            commands[-1] = Command(last.line, f"{last.text}\n{line[2:]}", "")
        else:
            commands[-1] = Command(last.line, last.text, f"{last.expected}{line}\n")
    return commands


def run_console(block: Block, document: str, folder: Path) -> list[str]:
    """Run the block in one shell; return one text for each command that did not do what the document says."""
    commands = commands_of(block)
    mark = f"<{secrets.token_hex(8)}>"
    # `(exit $s)` hands the command's exit code on, so that a document may show `echo $?`.
    script = "\n".join(f'{{ {c.text}\n}}\n__s=$?; printf \'{mark}%s{mark}\' "$__s"; (exit "$__s")' for c in commands)
    run = subprocess.run(
        ["sh", "-c", script],
        cwd=folder,
        env=environment(folder, document),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=240,
    )
    pieces = run.stdout.split(mark)
    outputs, codes = pieces[0::2], pieces[1::2]
    if len(codes) < len(commands):
        return [f"{document}:{commands[len(codes)].line}: the shell stopped at this command:\n{outputs[-1]}"]
    return [
        f"{document}:{command.line}: `$ {command.text}` {problem}"
        for command, output, code in zip(commands, outputs, codes, strict=False)
        if (problem := difference(command, output, int(code)))
    ]


def difference(command: Command, output: str, code: int) -> str:
    """Say how the real output departs from the document's, or nothing."""
    output = "".join(f"{line.rstrip()}\n" for line in output.splitlines())
    if code == 127 or (code != 0 and command.expected.strip() == "..."):
        return f"exited with {code}:\n{output}"
    checker, flags = doctest.OutputChecker(), doctest.ELLIPSIS | doctest.REPORT_UDIFF
    if checker.check_output(command.expected, output, flags):
        return ""
    if not command.expected:
        return f"prints something, and the document shows nothing:\n{output}"
    return checker.output_difference(doctest.Example("", command.expected), output, flags)
