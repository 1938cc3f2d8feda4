"""What a session displays and the pictures that a run leaves are output: the log keeps of them what the policy says."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from fumehood import AsyncSandbox, Policy
from fumehood.audit import AuditLog, Query, Record

pytestmark = pytest.mark.anyio
SHOW = """
class Plot:
    def _repr_png_(self): return b"pixels"
    def _repr_html_(self): return "<b>plot</b>"
    def __repr__(self): return "Plot"
open("a.png", "wb").write(b"a picture")
open("b.txt", "w").write("text")
open("c.png", "wb").write(bytes(1_100_000))
Plot()
"""


async def records(tmp_path: Path, kept: str) -> tuple[AuditLog, Record, Record]:
    log = AuditLog.at(tmp_path / "log")
    policy = Policy(filesystem={"outputs": ["*.png", "*.txt"]}, audit={"output": kept})
    async with AsyncSandbox(policy, audit=log) as box, box.session() as session:
        result = await session.run(SHOW)
        async for _ in session.stream("6 * 7"):
            pass
    assert [artifact.path for artifact in result.artifacts] == ["a.png", "b.txt", "c.png"]
    ends = list(log.find(Query(kind="run.finished")))
    (found,) = log.find(Query(kind="artifacts.found"))
    values = [each["type"] for each in ends[1].data.get("displays", ())]
    assert values == ([] if kept == "none" else ["text/plain"])
    return log, ends[0], found


async def test_in_full_displays_and_small_pictures_are_attached(tmp_path: Path) -> None:
    log, end, found = await records(tmp_path, "full")
    displayed = {each["type"]: log.attachment(each["content"]["stored"]) for each in end.data["displays"]}
    assert displayed == {"image/png": b"pixels", "text/html": b"<b>plot</b>", "text/plain": b"Plot"}
    assert {each["display"] for each in end.data["displays"]} == {1}
    kept = {each["path"]: each.get("content", {}).get("stored") for each in found.data["artifacts"]}
    assert kept == {"a.png": hashlib.sha256(b"a picture").hexdigest(), "b.txt": None, "c.png": None}
    assert log.attachment(str(kept["a.png"])) == b"a picture"


async def test_usually_their_digests_are_recorded(tmp_path: Path) -> None:
    log, end, found = await records(tmp_path, "digest")
    by_type = {each["type"]: each["content"] for each in end.data["displays"]}
    assert by_type["image/png"] == {"sha256": hashlib.sha256(b"pixels").hexdigest(), "size": 6}
    assert not end.stored
    assert [sorted(each) for each in found.data["artifacts"]] == [["path", "sha256", "size"]] * 3
    assert not found.stored
    assert log.attachment(hashlib.sha256(b"a picture").hexdigest()) is None


async def test_nothing_is_kept_of_what_is_not_to_be(tmp_path: Path) -> None:
    _, end, _ = await records(tmp_path, "none")
    assert "displays" not in end.data


async def test_a_flood_of_displays_makes_no_long_record(tmp_path: Path) -> None:
    log = AuditLog.at(tmp_path / "log")
    async with AsyncSandbox(Policy(), audit=log) as box, box.session() as session:
        await session.run("for n in range(150): display(n)")
    (end,) = log.find(Query(kind="run.finished"))
    assert (len(end.data["displays"]), end.data["displays_omitted"]) == (100, 50)
