"""What has changed in the sandbox, as a model sees it: names since the last look, and no line that a name has faked."""

from __future__ import annotations

import pytest

from fumehood import AsyncSandbox, Policy
from fumehood.tools import SHELL, Toolbox, ToolStatus, change_tools
from fumehood.tools.changes import MOST_FOLDERS

pytestmark = pytest.mark.anyio


async def test_a_model_sees_what_has_changed_since_its_last_look() -> None:
    async with AsyncSandbox(Policy()) as box:
        toolbox = Toolbox(box, SHELL, *change_tools())
        await toolbox.call("shell", {"command": "echo 1 > old; echo 1 > gone"})
        assert "from now on" in (await toolbox.call("changed_files", {})).text
        assert (await toolbox.call("changed_files", {})).text.startswith("Nothing has changed in the workspace")
        await toolbox.call("shell", {"command": "mkdir d; echo 1 > d/new; echo 22 > old; rm gone; mv d/new d/other"})
        text = (await toolbox.call("changed_files", {"wait": 10})).text
        assert text.splitlines() == [
            "In the workspace: 2 created, 1 deleted, 1 modified.",
            *("created d", "created d/other", "modified old", "deleted gone"),
        ]
        assert "Nothing" in (await toolbox.call("changed_files", {})).text


async def test_a_folder_that_goes_is_not_watched_any_more_and_can_be_again() -> None:
    async with AsyncSandbox(Policy()) as box:
        toolbox, asked = Toolbox(box, SHELL, *change_tools()), {"path": "d", "wait": 10}
        await box.files.mkdir("d")
        await toolbox.call("changed_files", {"path": "d"})
        await toolbox.call("shell", {"command": "rm -r d; mkdir d"})
        text = (await toolbox.call("changed_files", asked)).text
        assert text.splitlines() == ["In d: 1 deleted. d itself is gone, and is not watched any more.", "deleted d"]
        assert "from now on" in (await toolbox.call("changed_files", {"path": "d"})).text
        await toolbox.call("shell", {"command": "touch d/new"})
        assert "created d/new" in (await toolbox.call("changed_files", asked)).text


async def test_more_changes_than_one_look_has_are_not_kept_quiet() -> None:
    async with AsyncSandbox(Policy()) as box:
        toolbox = Toolbox(box, SHELL, *change_tools())
        await toolbox.call("changed_files", {})
        await toolbox.call("shell", {"command": "touch $(seq 250)"})
        first, second = [(await toolbox.call("changed_files", {"wait": 10})).text for _ in range(2)]
        assert first.startswith("In the workspace: 200 created. There may be more: call this again to see them.\n")
        assert second.startswith("In the workspace: 50 created.\n")


async def test_a_name_cannot_look_like_another_change() -> None:
    async with AsyncSandbox(Policy()) as box:
        toolbox = Toolbox(box, *change_tools())
        await toolbox.call("changed_files", {})
        await box.run(r"open('x\ndeleted \u202egnp', 'w').close()")
        text = (await toolbox.call("changed_files", {"wait": 10})).text
        assert len(text.splitlines()) == 2
        assert "\u202e" not in text


async def test_folders_that_are_watched_are_few_and_must_exist() -> None:
    async with AsyncSandbox(Policy()) as box:
        toolbox = Toolbox(box, *change_tools())
        gone = await toolbox.call("changed_files", {"path": "nowhere"})
        assert gone.status is ToolStatus.ERROR
        assert "does not exist" in gone.text
        for number in range(MOST_FOLDERS):
            await box.files.mkdir(f"d{number}")
            assert (await toolbox.call("changed_files", {"path": f"d{number}"})).status is ToolStatus.SUCCESS
        refused = await toolbox.call("changed_files", {})
        assert refused.status is ToolStatus.ERROR
        assert "which is the most" in refused.text
