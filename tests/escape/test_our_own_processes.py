"""Our own processes inside: what a program leaves behind must not become their code, hold them up, or speak for them.

| attack | stopped by | succeeds without it (`ablation.py`) |
|---|---|---|
| files named like modules | the program's folders join the path with its first line | `own-imports` |
"""

from __future__ import annotations

from pathlib import Path

import pytest

from escape.conftest import MakeSandbox

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

# A file for every module there is, which leaves a mark when anything executes it. What it stands for is not there.
PLANT = """
import os, sys
os.mkdir("marks")
names = {*sys.stdlib_module_names, *sys.modules, "guest", "sitecustomize", "usercustomize", "IPython", "traitlets"}
for name in names:
    if "." not in name:
        open(f"{name}.py", "w").write(f"open('/workspace/marks/{name}', 'a').close()")
"""
AWAIT = """
class Once:
    def __await__(self):
        yield

await Once()
"""


async def test_a_file_of_the_users_is_never_imported_by_ours(make_sandbox: MakeSandbox, host_folder: Path) -> None:
    async with make_sandbox(filesystem={"outputs": ["out/**"]}) as box:
        assert (await box.run(PLANT)).exit_code == 0
        await box.files.write("out/a", b"data")
        await box.files.mkdir("folder")
        assert await box.files.read("out/a") == b"data"
        await box.files.download("out", host_folder / "out")
        await box.files.remove("folder")
        async with box.session() as session:
            assert (await session.run("1 + 1")).displays
            assert (await session.run("print(input())", stdin="text")).stdout == "text\n"
            assert (await session.run(AWAIT)).exit_code == 0
            assert (await session.run("1 / 0")).exit_code == 1
        assert (await box.run("open('out/b', 'w').close()")).artifacts
        assert (await box.run("raise SystemExit('text')")).exit_code == 1
        assert (await box.run("class Own(Exception): pass\nraise Own")).exit_code == 1
        assert (await box.run(argv=["true"])).exit_code == 0
        assert (await (await box.start("print(1)")).wait()).stdout == "1\n"
        assert (await (await box.start(argv=["true"], terminal=(80, 24))).wait()).exit_code == 0
        assert [entry.name for entry in await box.files.list("marks")] == []
