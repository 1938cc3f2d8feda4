"""Every piece of code in the documents is run.

python    all blocks of a document in one namespace, in order; top-level `await` works
console   lines after `$ ` (continued with `> `) go to one shell for each block; what follows must be what they print,
          where `...` stands for anything
The comment `<!-- not executed: REASON -->` right before a block excuses it; `<!-- file: NAME -->` puts the block's text
where the other blocks of that document find it, beside a copy of examples/.
"""

from __future__ import annotations

import doctest
import os
import re
import secrets
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    *("README.md", "ARCHITECTURE.md", "SECURITY.md"),
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "decisions"),
]
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


@pytest.mark.parametrize("document", DOCUMENTS)
def test_blocks_are_marked_so_that_they_are_run(document: str) -> None:
    assert misleading_blocks(blocks_of(read(document))) == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize("document", DOCUMENTS)
def test_python_in_a_document_runs(document: str, tmp_path: Path) -> None:
    blocks = blocks_of(read(document))
    prepare_folder(tmp_path, blocks)
    failure = run_python(executed(blocks, "python"), name=document, folder=tmp_path)
    assert failure is None, failure


@pytest.mark.timeout(300)
@pytest.mark.parametrize("document", DOCUMENTS)
def test_commands_in_a_document_print_what_it_says(document: str, tmp_path: Path) -> None:
    blocks = blocks_of(read(document))
    prepare_folder(tmp_path, blocks)
    failures = [text for block in executed(blocks, "console") for text in run_console(block, document, tmp_path)]
    assert not failures, "\n\n".join(failures)


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
    for block in blocks:
        if block.verb == "file":
            target = folder / block.argument
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.text, encoding="utf-8")


def environment(folder: Path) -> dict[str, str]:
    """A reader's: the tools on the way, and a log with nothing of anybody else's in it."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    log = {"FUMEHOOD_AUDIT": f"{folder}.audit", "FUMEHOOD_APPROVALS": f"{folder}.approvals"}
    log |= {"FUMEHOOD_TRUST": f"{folder}.trust", "FUMEHOOD_SANDBOXES": f"{folder}.sandboxes"}
    # No document asks a model of anybody's for anything.
    kept = {name: value for name, value in os.environ.items() if not name.endswith(("_API_KEY", "FUMEHOOD_MODEL"))}
    return {**kept, **log, "PATH": path, "NO_COLOR": "1", "COLUMNS": "120"}


def run_python(blocks: list[Block], *, name: str, folder: Path) -> str | None:
    """Run the blocks as one program; say what went wrong, or None."""
    source = ""
    for block in blocks:
        source += "\n" * (block.line - 1 - source.count("\n")) + block.text
    run = subprocess.run(
        [sys.executable, "-c", RUNNER, name],
        input=source,
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=240,
    )
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
        env=environment(folder),
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


SAMPLE = """
# Sample

```python
import asyncio
n = 6
```
- in a list:

  ```console
  $ cat policy.yaml
  version: 1
  $ echo one; false
  one
  $ echo $?
  1
  $ cat <<END
  > two
  > END
  two
  $ printf 'a\\nb\\n'
  ...b
  ```

<!-- file: policy.yaml -->
```yaml
version: 1
```

<!-- not executed: needs a second machine -->
```console
$ reboot
```

```python
await asyncio.sleep(0)
assert n == 6
```
"""


def test_a_correct_document_passes(tmp_path: Path) -> None:
    blocks = blocks_of(SAMPLE)
    prepare_folder(tmp_path, blocks)
    assert [block.language for block in blocks] == ["python", "console", "yaml", "console", "python"]
    assert misleading_blocks(blocks) == []
    assert run_python(executed(blocks, "python"), name="sample", folder=tmp_path) is None
    assert [run_console(block, "sample", tmp_path) for block in executed(blocks, "console")] == [[]]


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ("$ echo hello\n", "the document shows nothing:\nhello"),
        ("$ echo hello\ngoodbye\n", "Expected:\n    goodbye\nGot:\n    hello\n"),
        ("$ true\nnothing\n", "Expected:"),
        ("$ no-such-command\n...\n", "exited with 127"),
        ("$ false\n...\n", "exited with 1"),
        ("$ exit 0\n$ echo never\nnever\n", "the shell stopped at this command"),
    ],
)
def test_a_command_that_does_something_else_is_reported(body: str, complaint: str, tmp_path: Path) -> None:
    (failure,) = run_console(Block("console", 7, body, "", ""), "sample", tmp_path)
    assert failure.startswith("sample:7:")
    assert complaint in failure


def test_failing_python_is_reported_with_its_line(tmp_path: Path) -> None:
    failure = run_python(blocks_of("text\n\n```python\n1 / 0\n```\n"), name="sample", folder=tmp_path)
    assert failure is not None
    assert 'File "sample", line 4' in failure


def test_a_block_that_would_not_be_run_is_reported() -> None:
    text = "```bash\nls\n```\n\n<!-- not executed -->\n```python\n1 / 0\n```\n"
    assert misleading_blocks(blocks_of(text)) == [
        "line 2: a bash block is not run; write it as console",
        "line 7: `<!-- not executed: ... -->` needs a reason",
    ]
