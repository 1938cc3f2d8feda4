"""Who sees what in the console, what is recorded of it, and what every answer says to the browser."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from unit.server.console_visits import Visit, ask, visit
from unit.server.hosting import Hosted, hosted

from fumehood.agents.audit_records import MessageReceived, TaskStartRecord
from fumehood.audit.events import Attachment, EgressDenied, RunFinished
from fumehood.audit.log import AuditLog
from fumehood.audit.store import Query
from fumehood.audit.trail import Trail
from fumehood.server.console.app import build_console
from fumehood.server.console.local_host import LocalConsole
from fumehood.server.console.local_source import LocalLogSource
from fumehood.server.console.routes import ROOT
from fumehood.server.console.sessions import StoredSessions
from fumehood.server.identity.principals import Scope

pytestmark = pytest.mark.anyio
OTHERS = ("run_1", "task_1", "secret.example", "key:other")


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Hosted]:
    async with hosted(tmp_path / "state", strict=False) as server:
        yield server


async def work_of_another(log: AuditLog) -> None:
    """A task, and a run with something that was denied."""
    task = Trail(log, "key:other").within(task="task_1", agent="analyst")
    await task.write(TaskStartRecord("analyst", Attachment(b"Add up."), "scripted", (), None))
    await task.write(MessageReceived(Attachment(b"Add up.")))
    trail = Trail(log, "key:other").within(run="run_1", sandbox="box_1")
    await trail.write(EgressDenied("connect", "connect secret.example:443", "no rule opens this name", None, 1))
    await trail.write(RunFinished("success", "exit", *(None,) * 10))


async def news(visitor: Visit, view: str, last: int) -> str:
    """All that a stream says up to a record."""
    told = ""
    async with asyncio.timeout(20), visitor.client.stream("GET", f"/news?view={view}&after=0") as answer:
        assert answer.status_code == 200, view
        async for line in answer.aiter_lines():
            told += f"{line}\n"
            if line == f"id: {last}":
                return told
    raise AssertionError(f"the stream has ended: {told}")


async def test_who_only_runs_sees_nothing_of_others(host: Hosted) -> None:
    owner = await host.tenant("acme")
    await work_of_another(host.server.chains.log_of("acme"))
    wanted = {"policy": "closed", "metadata": {"team": "finance"}}
    opened = (await owner.post("/sandboxes", json=wanted)).json()["id"][:16]
    log = host.server.chains.log_of("acme")
    async with (
        visit(host, await host.key("acme", [Scope.RUN, Scope.AUDIT])) as reader,
        visit(host, await host.key("acme", [Scope.RUN])) as runner,
    ):
        await reader.sign_in()
        await runner.sign_in()
        words = (*OTHERS, opened, "finance", 'data-label="open">1<')
        pages = ("/", "/tasks", "/egress", "/policies")
        shown = "".join([(await reader.get(path)).text for path in pages])
        assert [word for word in words if word not in shown] == []
        shown = "".join([(await runner.get(path)).text for path in pages])
        assert [word for word in words if word in shown] == []
        last = log.head().seq
        for view in ("now", "tasks"):
            assert "key:other" in await news(reader, view, last)  # first, so that what was made for it is kept
            told = await news(runner, view, last)
            assert [word for word in (*OTHERS, opened, "finance") if word in told] == [], view
        for path in ("/runs/run_1", "/tasks/task_1"):
            assert (await runner.get(path)).status_code == 404
        for view in ("run:run_1", "task:task_1", "approvals", "approval:x"):
            async with runner.client.stream("GET", f"/news?view={view}&after=0") as answer:
                assert answer.status_code == 404, view


async def test_every_view_of_what_others_have_done_is_recorded(host: Hosted) -> None:
    owner = await host.tenant("acme")
    log = host.server.chains.log_of("acme")
    await work_of_another(log)
    asked, record = (await ask(owner))["id"], next(iter(log.find(Query(kind="message.received")))).seq
    views = {
        "/tasks/task_1": ("task", "task_1"),
        f"/approvals/{asked}": ("approval", asked),
        f"/audit/records/{record}": ("record", str(record)),
        "/usage.csv?period=24h": ("export", "usage of 24h"),
    }
    async with visit(host, await host.key("acme", [Scope.AUDIT, Scope.APPROVE])) as visitor:
        await visitor.sign_in()
        await news(visitor, "task:task_1", log.head().seq)
        assert _newest(log, "console.viewed") == ("task", "task_1")
        for path, view in views.items():
            before = log.head().seq
            assert (await visitor.get(path)).status_code == 200, path
            assert _newest(log, "console.viewed", before) == view
        before = log.head().seq
        assert (await visitor.post("/audit/export")).status_code == 200
        assert _newest(log, "console.viewed", before) is not None
        before = log.head().seq
        await visitor.get("/audit")
        read = AuditLog.at(Path(host.server.settings.state) / "audit").find(Query(kind="records.read"))
        assert [each.data["count"] for each in read] == [before]


def _newest(log: AuditLog, kind: str, after: int = 0) -> tuple[str, str] | None:
    found = next(iter(log.find(Query(kind=kind, after=after, newest_first=True, limit=1))), None)
    return None if found is None else (found.data["what"], found.data["subject"])


async def test_no_answer_lets_a_browser_do_more_than_it_must(host: Hosted) -> None:
    """Word by word: a policy that is loosened in one place is another one."""
    async with visit(host, await host.tenant("acme")) as visitor:
        await visitor.sign_in()
        for path in ("/", "/sign-in", "/nothing", "/static/console.js"):
            headers = (await visitor.get(path)).headers
            allowed = dict(each.split(" ", 1) for each in headers["content-security-policy"].split("; "))
            own = dict.fromkeys(("script-src", "style-src", "img-src", "connect-src", "form-action"), "'self'")
            assert allowed == {**own, **dict.fromkeys(("default-src", "frame-ancestors", "base-uri"), "'none'")}
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["cross-origin-opener-policy"] == headers["cross-origin-resource-policy"] == "same-origin"
            assert headers["referrer-policy"] == "same-origin"


async def test_a_sign_in_of_another_site_begins_no_session(host: Hosted) -> None:
    """Who is signed in as somebody else would do their work under that name."""
    async with visit(host, await host.tenant("acme")) as visitor:
        for headers in ({}, {"Origin": "null"}, {"Origin": visitor.origin, "Sec-Fetch-Site": "cross-site"}):
            answer = await visitor.client.post("/sign-in", data={"key": visitor.key}, headers=headers)
            assert (answer.status_code, "set-cookie" in answer.headers) in ((403, False), (409, False)), headers


async def test_the_form_token_of_one_session_is_not_that_of_another(host: Hosted) -> None:
    api = await host.tenant("acme")
    async with visit(host, api) as first, visit(host, api) as second:
        await first.sign_in()
        await second.sign_in()
        form, own = {"token": await first.token()}, {"Origin": second.origin}
        assert (await second.client.post("/audit/verify", data=form, headers=own)).status_code == 409
        assert (await first.client.post("/audit/verify", data=form, headers=own)).status_code == 303


async def test_a_cookie_is_worth_nothing_where_its_key_is_not(host: Hosted) -> None:
    owner = await host.tenant("acme")
    wanted = {"name": "desk", "scopes": ["run"], "networks": ["127.0.0.1/32"]}
    key = (await owner.post("/keys", json=wanted)).json()["key"]
    async with visit(host, host.client(key)) as visitor:
        await visitor.sign_in()
        assert (await visitor.get("/")).status_code == 200
        value = visitor.client.headers["Cookie"].partition("=")[2]
    sessions = StoredSessions(host.server.database)
    assert await sessions.find(value, "127.0.0.1") is not None
    assert await sessions.find(value, "192.0.2.7") is None


async def test_the_one_who_asked_does_not_answer_in_the_console_either(host: Hosted) -> None:
    api = await host.tenant("acme")
    asked = await ask(api)
    made = (await api.post("/keys", json={"name": "second", "scopes": ["run", "approve"]})).json()["key"]
    for key in (api, host.client(made)):  # also under the name of a key that it has made
        async with visit(host, key) as visitor:
            await visitor.sign_in()
            form = {"digest": asked["digest"], "verdict": "approve"}
            assert (await visitor.post(f"/approvals/{asked['id']}", **form)).status_code == 403
    assert (await api.get(f"/approvals/{asked['id']}")).json()["state"] == "asked"


@pytest.mark.parametrize("is_own", [True, False])
async def test_a_link_opens_one_session_and_a_copy_of_a_log_answers_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_own: bool
) -> None:
    monkeypatch.setenv("FUMEHOOD_AUDIT", str(tmp_path / "audit"))
    monkeypatch.setenv("FUMEHOOD_APPROVALS", str(tmp_path / "approvals"))
    log = AuditLog.at(tmp_path / "audit")
    await work_of_another(log)
    console = LocalConsole(LocalLogSource(None if is_own else tmp_path / "audit"))
    app = Starlette(routes=[Mount(ROOT, build_console(console))])
    try:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="https://127.0.0.1") as client:
            first = console.new_link("https://127.0.0.1")
            link = console.new_link("https://127.0.0.1")
            assert (await client.get(first)).status_code == 409  # there is a newer one
            assert (await client.get(f"{link}x")).status_code == 409
            assert (await client.get(f"{ROOT}/open")).status_code == 409
            assert (await client.get(link)).status_code == 303
            assert (await client.get(f"{ROOT}/runs/run_1")).status_code == 200
            assert (await client.get(f"{ROOT}/approvals")).status_code == (200 if is_own else 403)
            client.cookies.clear()
            assert (await client.get(link)).status_code == 409
            assert (await client.get(f"{ROOT}/runs/run_1")).status_code == 303
    finally:
        console.close()
