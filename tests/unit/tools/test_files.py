"""The tools for files, in a real sandbox under the policy that denies everything."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from fumehood import AsyncSandbox
from fumehood.tools import STANDARD, Toolbox, ToolStatus

pytestmark = pytest.mark.anyio


@pytest.fixture
async def toolbox() -> AsyncIterator[Toolbox]:
    async with AsyncSandbox() as box:
        yield Toolbox(box, *STANDARD)


async def say(toolbox: Toolbox, name: str, **arguments: Any) -> str:
    return (await toolbox.call(name, arguments)).text


async def test_files_can_be_written_listed_read_and_edited(toolbox: Toolbox) -> None:
    assert await say(toolbox, "write_file", path="a/b.txt", content="one\ntwo\nthrée\n") == "Wrote 15B to a/b.txt."
    assert (await say(toolbox, "list_files", path="a")).split() == ["file", "15B", "b.txt"]
    assert await say(toolbox, "read_file", path="a/b.txt") == "one\ntwo\nthrée\n"
    assert (
        await say(toolbox, "read_file", path="/workspace/a/b.txt", first_line=2, lines=1)
        == "[lines 2 to 2 of 3]\ntwo\n"
    )
    assert await say(toolbox, "edit_file", path="a/b.txt", old="two", new="2") == "Replaced 1 time."
    assert await say(toolbox, "read_file", path="a/b.txt") == "one\n2\nthrée\n"
    assert "a/b.txt" in await say(toolbox, "python", code="print('a/b.txt', open('a/b.txt').read())")


async def test_an_empty_file_and_an_empty_folder_are_told_as_such(toolbox: Toolbox) -> None:
    assert await say(toolbox, "list_files") == "The folder is empty."
    await say(toolbox, "write_file", path="x", content="")
    assert await say(toolbox, "read_file", path="x") == "The file is empty."


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("read_file", {"path": "none"}, "none cannot be read: No such file or directory."),
        ("read_file", {"path": "/"}, "/ cannot be read: Is a directory."),
        ("read_file", {"path": "/etc/shadow"}, "No such file"),
        ("read_file", {"path": "text", "first_line": 9}, "it has only 3 lines"),
        ("read_file", {"path": "data"}, "it is not a text file (4 bytes)"),
        ("edit_file", {"path": "text", "old": "z", "new": ""}, "does not contain the text in `old`"),
        ("edit_file", {"path": "text", "old": "a", "new": ""}, "contains the text in `old` 2 times"),
        ("edit_file", {"path": "/usr/x", "old": "a", "new": ""}, "No such file"),
        ("write_file", {"path": "/usr/x", "content": ""}, "it is read-only in the sandbox"),
        ("write_file", {"path": "text/x", "content": ""}, "could not be done"),
        ("list_files", {"path": "none"}, "could not be done"),
        ("write_file", {"path": "a\0b", "content": ""}, "could not be done"),
    ],
)
async def test_what_cannot_be_done_is_told(toolbox: Toolbox, name: str, arguments: dict[str, Any], words: str) -> None:
    await toolbox.call(
        "python", {"code": "open('text', 'w').write('a\\nb\\na\\n'); open('data', 'wb').write(b'\\xff\\0ab')"}
    )
    result = await toolbox.call(name, arguments)
    assert result.status in (ToolStatus.ERROR, ToolStatus.DENIED)
    assert words in result.text


async def test_every_occurrence_can_be_replaced_and_the_mode_stays(toolbox: Toolbox) -> None:
    await toolbox.call("python", {"code": "import os; open('x', 'w').write('a\\r\\na'); os.chmod('x', 0o750)"})
    assert await say(toolbox, "edit_file", path="x", old="a", new="b", everywhere=True) == "Replaced 2 times."
    told = await say(toolbox, "python", code="import os; print(open('x', 'rb').read(), oct(os.stat('x').st_mode))")
    assert "b'b\\r\\nb' 0o100750" in told


async def test_a_file_that_pretends_to_be_an_answer_is_only_text(toolbox: Toolbox) -> None:
    await say(toolbox, "write_file", path="x", content='{"problem": "lies"}\n')
    assert await say(toolbox, "read_file", path="x") == '{"problem": "lies"}\n'


async def test_in_a_session_neither_meets_the_names_of_the_other() -> None:
    async with AsyncSandbox(session=True) as box:
        toolbox = Toolbox(box, *STANDARD)
        await say(toolbox, "python", code="path, given, json = 'mine', 1, None")
        await say(toolbox, "write_file", path="x", content="text")
        assert await say(toolbox, "read_file", path="x") == "text"
        assert "mine 1 None" in await say(toolbox, "python", code="print(path, given, json)")
