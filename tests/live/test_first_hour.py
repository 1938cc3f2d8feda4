"""The transcripts of docs/first-hour.md, with an index of packages on this machine in the place of the reader's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from documents import Block, blocks_of, commands_of, executed, prepare_folder, read, run_console
from live.package_index import make_wheel, open_index

PAGE = "docs/first-hour.md"
GREETER = make_wheel("greeter", {"greeter.py": "def hello(name):\n    return f'hello, {name}'\n"})
BLOCKS = blocks_of(read(PAGE))
TASKS = executed(BLOCKS, "console")


def test_the_page_has_twenty_tasks_and_says_what_each_needs() -> None:
    assert len(TASKS) == 20
    assert re.findall(r"^\| (\d+) \| (\d+) \| (\d+) \|", read(PAGE), re.MULTILINE) == [
        (str(number), *needs(block)) for number, block in enumerate(TASKS, 1)
    ]


def needs(block: Block) -> tuple[str, str]:
    """The commands of a task, and its lines with those that go on."""
    commands = commands_of(block)
    return str(len(commands)), str(sum(command.text.count("\n") + 1 for command in commands))


@pytest.mark.timeout(300)
def test_the_transcripts_are_what_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare_folder(tmp_path, BLOCKS)
    with open_index(GREETER) as index:
        monkeypatch.setenv("UV_DEFAULT_INDEX", index.url)
        failures = [text for block in TASKS for text in run_console(block, PAGE, tmp_path)]
    assert not failures, "\n\n".join(failures)
