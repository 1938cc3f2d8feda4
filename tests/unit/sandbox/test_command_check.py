"""Whether a run may begin, as far as commands go."""

from __future__ import annotations

import anyio
import pytest

from fumehood import Policy
from fumehood.sandbox.command_check import denials
from fumehood.sandbox.request import make_request

pytestmark = pytest.mark.anyio


async def test_others_go_on_while_a_line_is_judged() -> None:
    policy = Policy(commands={"allow": ["ls"]})
    request = make_request(policy, "ls; " * 500 + "rm x", {"language": "bash"})
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        group.start_soon(count)
        assert [denial.what for denial in await denials(policy, request)] == ["rm x"]
        assert turns
        group.cancel_scope.cancel()


async def test_a_writable_mount_is_a_place_to_write_to() -> None:
    mount = {"source": "/tmp", "target": "/data", "mode": "rw"}
    for filesystem, count in (({}, 1), ({"mounts": [mount]}, 0)):
        policy = Policy(commands={"allow": ["ls"]}, filesystem=filesystem)
        request = make_request(policy, "ls > /data/list.txt", {"language": "bash"})
        assert len(await denials(policy, request)) == count


async def test_a_language_needs_its_interpreter_among_the_names_where_the_kernel_holds_them() -> None:
    for commands, count in (
        ({"allow": ["ls"]}, 1),
        ({"allow": ["ls", "node"]}, 0),
        ({"allow": ["ls"], "enforce": "parse"}, 0),
        ({"deny": ["rm"]}, 0),
    ):
        policy = Policy(commands=commands)
        request = make_request(policy, "1", {"language": "javascript"})
        assert len(await denials(policy, request)) == count, commands
