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


@pytest.mark.parametrize(
    "cwd", [".git/hooks", ".git", "hooks", "/etc", "..", "src/..", "/workspace/.git", "/proc/self/fd"]
)
async def test_nothing_relative_is_written_where_a_cd_would_not_let_it_be(cwd: str) -> None:
    policy = Policy(commands={"allow": ["cp", "tee", "bash"]})
    for line in ("cp a.sample a; printf x > a", "tee a", "bash -c 'echo x > a'"):
        assert await denials(policy, make_request(policy, line, {"language": "bash", "cwd": cwd}))
        assert not await denials(policy, make_request(policy, line, {"language": "bash"}))
    assert await denials(policy, make_request(policy, None, {"argv": ["tee", "a"], "cwd": cwd}))
    assert not await denials(policy, make_request(policy, "cp a /tmp/a", {"language": "bash", "cwd": cwd}))


@pytest.mark.parametrize("cwd", ["sub", "/workspace/sub", "/tmp", "sub/..", "../workspace"])
async def test_a_relative_program_is_the_one_in_the_workspace(cwd: str) -> None:
    policy = Policy(commands={"allow": ["./build.sh", "bin/build", "bash"], "enforce": "parse"})
    for options in ({"language": "bash"}, {"argv": ["./build.sh"]}, {"argv": ["bin/build"]}):
        source = None if "argv" in options else "./build.sh"
        assert await denials(policy, make_request(policy, source, {**options, "cwd": cwd}))
        for same in ("", ".", "/workspace", "/workspace/", "./"):
            assert not await denials(policy, make_request(policy, source, {**options, "cwd": same}))
    for line in ("cd sub; bash -c ./build.sh", "cd sub; bin/build", "bash -c 'cd sub; bash -c ./build.sh'"):
        assert await denials(policy, make_request(policy, line, {"language": "bash"}))


@pytest.mark.parametrize("cwd", ["sub", "/workspace/sub", "/tmp", "src/config"])
async def test_an_ordinary_folder_is_one_to_write_in(cwd: str) -> None:
    policy = Policy(commands={"allow": ["tee"]})
    assert not await denials(policy, make_request(policy, "tee a.txt", {"language": "bash", "cwd": cwd}))


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
