"""Pages of what is long, slow to be drawn, or goes on while it is drawn."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from unit.server.console_visits import visit
from unit.server.hosting import Hosted, hosted

from fumehood.agents.audit_records import MessageReceived, TaskStartRecord
from fumehood.audit.events import Attachment, EgressDenied, RunFinished
from fumehood.audit.trail import Trail
from fumehood.server.console import page_request
from fumehood.server.console.pages import run as run_page
from fumehood.server.console.run_story import RunRecords
from fumehood.server.console.source import RecordReader
from fumehood.server.identity.principals import Scope

pytestmark = pytest.mark.anyio


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Hosted]:
    async with hosted(tmp_path / "state", strict=False) as server:
        yield server


async def test_a_page_that_is_slow_to_draw_holds_up_no_other_tenant(
    host: Hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, other = await host.tenant("acme"), await host.tenant("other")
    gate, draw = threading.Event(), page_request.render

    def render(template: str, **context: object) -> str:
        if template == "usage.html":
            gate.wait(60)
        return draw(template, **context)

    async with visit(host, slow) as waits, visit(host, other) as goes_on:
        await waits.sign_in()
        await goes_on.sign_in()
        monkeypatch.setattr(page_request, "render", render)
        waiting = asyncio.ensure_future(waits.get("/usage"))
        try:
            async with asyncio.timeout(30):
                for path in ("/", "/audit"):
                    assert (await goes_on.get(path)).status_code == 200
            assert not waiting.done()
        finally:
            gate.set()
        assert (await waiting).status_code == 200


async def test_what_is_recorded_while_a_page_is_made_is_in_its_news(
    host: Hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    await host.tenant("acme")
    trail = Trail(host.server.chains.log_of("acme"), "key:other").within(run="run_1", sandbox="box_1")
    await trail.write(EgressDenied("connect", "connect a.example:443", "no rule opens this name", None, 1))
    found = run_page.records_around

    def meanwhile(log: RecordReader, run: str) -> RunRecords:
        trail.write_blocking(RunFinished("success", "exit", *(None,) * 10))
        return found(log, run)

    monkeypatch.setattr(run_page, "records_around", meanwhile)
    async with visit(host, await host.key("acme", [Scope.AUDIT])) as visitor:
        await visitor.sign_in()
        shown = (await visitor.get("/runs/run_1")).text
        after = re.search(r'data-after="(\d+)"', shown)
        assert after is not None
        assert "Ended" not in shown
        place = f"/news?view=run:run_1&after={after[1]}"
        async with asyncio.timeout(20), visitor.client.stream("GET", place) as news:
            assert "Ended" in await anext(line async for line in news.aiter_lines() if "step-title" in line)


async def test_a_long_story_goes_on_on_another_page(host: Hosted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fumehood.server.console.pages.tasks._MOST_STEPS", 4)
    await host.tenant("acme")
    log = host.server.chains.log_of("acme")
    task = Trail(log, "key:other").within(task="task_1", agent="analyst")
    await task.write(TaskStartRecord("analyst", Attachment(b"Add up."), "scripted", (), None))
    for number in range(9):
        await task.write(MessageReceived(Attachment(f"message {number}".encode())))
    async with visit(host, await host.key("acme", [Scope.AUDIT])) as visitor:
        await visitor.sign_in()
        path, seen, pages = "/tasks/task_1", list[str](), 0
        while path:
            shown = (await visitor.get(path)).text
            seen += re.findall(r'id="step-(\d+)"', shown)
            rest = re.search(r'href="/console(/tasks/task_1\?after=\d+)"', shown)
            is_live = 'data-live="/console/news' in shown
            assert is_live == (rest is None)  # what is new stands at the end
            path, pages = (rest[1] if rest else ""), pages + 1
        assert pages == 3
        assert seen == sorted(set(seen), key=int)
        assert len(seen) == 10
        assert (await visitor.get("/tasks/task_1?after=x")).status_code == 200


async def test_a_page_of_many_large_texts_says_where_the_rest_is(host: Hosted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fumehood.server.console.story._MOST_ON_PAGE", 2500)
    await host.tenant("acme")
    task = Trail(host.server.chains.log_of("acme"), "key:other").within(task="task_1", agent="analyst")
    await task.write(TaskStartRecord("analyst", Attachment(b"Add up."), "scripted", (), None))
    for letter in b"abc":
        await task.write(MessageReceived(Attachment(bytes([letter]) * 1000)))
    async with visit(host, await host.key("acme", [Scope.AUDIT])) as visitor:
        await visitor.sign_in()
        shown = (await visitor.get("/tasks/task_1")).text
        assert [letter * 1000 in shown for letter in "abc"] == [True, True, False]
        assert "left out of this long page" in shown
        record = re.search(r'href="/console(/audit/records/\d+)">its record', shown)
        assert record is not None
        assert "c" * 1000 in (await visitor.get(record[1])).text
