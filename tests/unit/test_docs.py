"""Every piece of code in the documents is run: tests/documents.py says how."""

from __future__ import annotations

from pathlib import Path

import pytest
from documents import (
    ROOT,
    Block,
    blocks_of,
    executed,
    misleading_blocks,
    prepare_folder,
    read,
    run_console,
    run_python,
)

DOCUMENTS = [
    *("README.md", "ARCHITECTURE.md", "SECURITY.md"),
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "decisions"),
]
# Needs an index of packages: tests/live/test_first_hour.py.
ELSEWHERE = "docs/first-hour.md"


def documents_with(language: str) -> list[str]:
    return [document for document in DOCUMENTS if executed(blocks_of(read(document)), language)]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_blocks_are_marked_so_that_they_are_run(document: str) -> None:
    assert misleading_blocks(blocks_of(read(document))) == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize("document", documents_with("python"))
def test_python_in_a_document_runs(document: str, tmp_path: Path) -> None:
    blocks = blocks_of(read(document))
    prepare_folder(tmp_path, blocks)
    failure = run_python(executed(blocks, "python"), name=document, folder=tmp_path)
    assert failure is None, failure


@pytest.mark.timeout(300)
@pytest.mark.parametrize("document", [document for document in documents_with("console") if document != ELSEWHERE])
def test_commands_in_a_document_print_what_it_says(document: str, tmp_path: Path) -> None:
    blocks = blocks_of(read(document))
    prepare_folder(tmp_path, blocks)
    failures = [text for block in executed(blocks, "console") for text in run_console(block, document, tmp_path)]
    assert not failures, "\n\n".join(failures)


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
