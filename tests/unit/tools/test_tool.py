"""Somebody watches a tool's run: they see its output as it appears, and the result is the same as without them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import pytest

from fumehood import AsyncSandbox, Policy, Stderr, Stdout
from fumehood.tools import PYTHON, SHELL, Toolbox
from fumehood.tools.tool import ToolContext

pytestmark = pytest.mark.anyio
CODE = "import os, sys\nprint('one', flush=True)\nprint('two', file=sys.stderr)\nos.makedirs('out')\nopen('out/x', 'w')"


@pytest.fixture
async def box() -> AsyncIterator[AsyncSandbox]:
    async with AsyncSandbox(Policy(filesystem={"outputs": ["out/**"]}, commands={"allow": ["echo"]})) as opened:
        yield opened


async def test_the_result_is_the_same_whether_anybody_watches(box: AsyncSandbox) -> None:
    seen: list[Stdout | Stderr] = []
    watched = await Toolbox(box, PYTHON).call("python", {"code": CODE}, watch=seen.append)
    assert b"".join(event.data for event in seen if isinstance(event, Stdout)) == b"one\n"
    assert b"".join(event.data for event in seen if isinstance(event, Stderr)) == b"two\n"
    async with AsyncSandbox(box.policy) as other:
        alone = await Toolbox(other, PYTHON).call("python", {"code": CODE})
    assert watched.text == alone.text
    assert watched.run is not None
    assert alone.run is not None
    assert watched.run.stdout_bytes == b"one\n"
    assert [item.path for item in watched.run.artifacts] == [item.path for item in alone.run.artifacts] == ["out/x"]


async def test_output_is_seen_before_the_end(box: AsyncSandbox) -> None:
    """The program ends when what it has written was seen."""
    seen = anyio.Event()

    async def answer() -> None:
        await seen.wait()
        await box.files.write("go", b"")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(answer)
        code = "import os, time\nprint('up', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.01)"
        result = await Toolbox(box, PYTHON).call("python", {"code": code}, watch=lambda event: seen.set())
    assert result.ok


async def test_displays_of_a_session_are_kept(box: AsyncSandbox) -> None:
    async with box.session() as session:
        context = ToolContext(box, watch=lambda event: None)
        result = await context.run("print(1)\n6 * 7", session=session)
    assert (result.stdout, result.displays[0].data["text/plain"]) == ("1\n", "42")


async def test_what_is_denied_shows_nothing(box: AsyncSandbox) -> None:
    seen: list[Stdout | Stderr] = []
    result = await Toolbox(box, SHELL).call("shell", {"command": "echo x; rm y"}, watch=seen.append)
    assert (result.status, seen) == ("denied", [])
