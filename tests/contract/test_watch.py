"""`box.watch`: what changes in a folder, on every backend; what programs do costs the host nothing."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import pytest

from fumehood import AsyncSandbox, ChangeKind, Policy, Sandbox, UsageError


def seen(watch: object) -> set[tuple[str, str, str | None]]:
    return {(change.kind.value, change.path, change.old_path) for change in watch}  # type: ignore[attr-defined]


def test_changes_of_programs_and_of_the_caller_are_seen(make_policy: Callable[..., Policy]) -> None:
    with Sandbox(make_policy()) as box:
        box.run(
            "mkdir -p out; echo 1 >out/old; echo 1 >out/gone; echo 1 >out/same; echo 1 >aside", language="sh"
        ).check()
        watch = box.watch("out", timeout=1)
        code = "echo 22 >out/old; rm out/gone; mkdir out/sub; mv out/same out/moved; echo >aside; echo >out/sub/new"
        box.run(code, language="sh").check()
        changes = seen(watch)
        assert changes - {("renamed", "out/moved", "out/same")} == {
            ("modified", "out/old", None),
            ("deleted", "out/gone", None),
            ("created", "out/sub", None),
            ("created", "out/sub/new", None),
        }
        assert ("renamed", "out/moved", "out/same") in changes
        assert list(watch) == []  # it ended
        with box.watch(recursive=False) as watch:
            box.files.write("mine.txt", "1")
            assert (change := next(watch)).kind is ChangeKind.CREATED
            assert change.path == "mine.txt"
        with pytest.raises(UsageError, match="does not exist"):
            box.watch("nowhere")


@pytest.mark.one_container
@pytest.mark.anyio
async def test_a_watch_ends_with_its_sandbox_and_leaves_nothing(make_policy: Callable[..., Policy]) -> None:
    ends: list[str] = []

    async def follow(box: AsyncSandbox, ready: anyio.Event) -> None:
        async with box.watch() as watch:
            ready.set()
            ends.extend([change.path async for change in watch])
        ends.append("end")

    async with anyio.create_task_group() as tasks, AsyncSandbox(make_policy()) as box:
        ready = anyio.Event()
        tasks.start_soon(follow, box, ready)
        await ready.wait()
    assert ends == ["end"]


@pytest.mark.one_container
def test_a_flood_of_changes_is_one_overflow(make_policy: Callable[..., Policy]) -> None:
    """More names than a watch follows: the caller is told to look again, and no list of them is made."""
    flood = "import os\nfor n in range(21_000): os.close(os.open(f'f{n}', os.O_CREAT))"
    with Sandbox(make_policy(resources={"timeout": "100s"})) as box:
        with box.watch(timeout=20) as watch:
            box.run(flood).check()
            kinds = {next(watch).kind for _ in range(1)}
            while ChangeKind.OVERFLOW not in kinds:
                kinds.add(next(watch).kind)
        assert kinds <= {ChangeKind.CREATED, ChangeKind.OVERFLOW}
