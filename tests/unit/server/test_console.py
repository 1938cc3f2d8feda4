"""The console without a browser: who gets which answer, sessions, forms, news."""

from __future__ import annotations

import asyncio
import hashlib
import html
import os
import re
import sqlite3
import struct
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from identity_provider import IdentityProviderServer, identity_provider
from unit.server.console_visits import Visit, ask, run, visit
from unit.server.hosting import Hosted, hosted

from fumehood.audit.events import Attachment, RunFinished
from fumehood.audit.records import Record
from fumehood.audit.store import Query
from fumehood.audit.trail import Trail
from fumehood.errors import AuditError
from fumehood.server.console import pages
from fumehood.server.console.app import CONTENT_POLICY
from fumehood.server.console.code_view import highlighted
from fumehood.server.console.news import Fragment, NewsFeed
from fumehood.server.console.sessions import COOKIE
from fumehood.server.console.threads import LogThreads
from fumehood.server.identity.principals import Scope
from fumehood.server.storage.database import EVERYTHING
from fumehood.server.tenants.quotas import Quota, set_limit

pytestmark = pytest.mark.anyio
ROUTES = [route for module in pages.modules(is_local=False) for route in module.routes]


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Hosted]:
    async with hosted(tmp_path / "state", strict=False) as server:
        yield server


async def test_a_foreign_id_answers_as_one_that_never_was(host: Hosted) -> None:
    """Every route of the console with an id, and every live view of one, byte by byte."""
    owner, stranger = await host.tenant("acme"), await host.tenant("other")
    ids = {
        "/runs/": (await run(owner), "run_0000000000000000"),
        "/approvals/": ((await ask(owner))["id"], "ask_0000000000000000"),
        "/tasks/": ("task_1111111111111111", "task_0000000000000000"),
        "/audit/records/": ("3", "99"),
        "/policies/": ("of-acme", "never-was"),
        "/keys/": (owner.headers["authorization"].split("_")[1], "00000000"),
    }
    assert (await owner.put("/policies/of-acme", json={"text": "strict: false\n"})).status_code == 200
    await set_limit(host.server.database, "other", Quota.REQUESTS, 1000, "test")
    compared = set[str]()
    async with visit(host, stranger) as visitor:
        await visitor.sign_in()
        await visitor.get("/")
        paths = [(route.method, route.path, route.path.partition("{")[0]) for route in ROUTES if "{" in route.path]
        paths += [("GET", f"/news?after=0&view={name}:{{id}}", f"/{name}s/") for name in ("run", "task")]
        for method, path, prefix in paths:
            if prefix in ("/tenants/", "/workers/"):
                continue  # for those who run the server, and see all
            shown: list[tuple[int, bytes, dict[str, str]]] = []
            for identifier in ids[prefix]:
                place = re.sub(r"\{\w+\}", identifier, path)
                form = {"digest": "x", "verdict": "approve"}
                answer = await (visitor.get(place) if method == "GET" else visitor.post(place, **form))
                kept = {name: value for name, value in answer.headers.items() if name != "date"}
                shown.append((answer.status_code, answer.content, kept))
            assert shown[0] == shown[1], path
            assert shown[0][0] == 404, (path, shown[0])
            compared.add(prefix)
    assert compared == set(ids)
    kinds = [record.kind for record in host.server.chains.log_of("other").find(Query(kind="console"))]
    assert kinds == []


async def test_each_page_is_for_its_scopes_and_nothing_is_for_strangers(host: Hosted) -> None:
    await host.tenant("acme")
    none = await host.key("acme", [Scope.FILES])
    async with visit(host, none) as visitor:
        for route in ROUTES:
            place = re.sub(r"\{\w+\}", "1", route.path)
            answer = await visitor.client.request(route.method, place)
            assert answer.status_code == (303 if route.method == "GET" else 401), route.path
            assert answer.headers["content-security-policy"] == CONTENT_POLICY
        await visitor.sign_in()
        for route in ROUTES:
            place = re.sub(r"\{\w+\}", "1", route.path)
            answer = await visitor.client.request(route.method, place, headers={"Origin": visitor.origin})
            assert (answer.status_code == 403) == bool(route.scopes), (route.path, answer.status_code)
            assert answer.headers["cache-control"] == "no-store"


async def test_forms_need_the_token_of_the_session_and_the_origin_of_the_console(host: Hosted) -> None:
    owner = await host.tenant("acme")
    person = await host.key("acme", [Scope.APPROVE, Scope.RUN])
    asked = await ask(owner)
    place, form = f"/approvals/{asked['id']}", {"digest": asked["digest"], "verdict": "approve"}
    async with visit(host, person) as visitor:
        await visitor.sign_in()
        token, own = await visitor.token(), {"Origin": visitor.origin}
        wrong: list[tuple[dict[str, str], dict[str, str]]] = [
            ({**form, "token": token}, {}),
            ({**form, "token": token}, {"Origin": "null"}),
            ({**form, "token": token}, {"Origin": visitor.origin, "Sec-Fetch-Site": "same-site"}),
            ({**form, "token": "0" * 64}, own),
            (form, own),
            ({**form, "token": token, "digest": "sha256:0"}, own),
            ({**form, "token": token, "verdict": "perhaps"}, own),
        ]
        for data, headers in wrong:
            answer = await visitor.client.post(place, data=data, headers=headers)
            assert answer.status_code in (403, 409, 422), (data, headers)
        evil = await visitor.client.post(
            place, data={**form, "token": token}, headers={"Origin": "https://evil.example"}
        )
        assert evil.status_code == 403
        assert (await owner.get(f"/approvals/{asked['id']}")).json()["state"] == "asked"
        assert (await visitor.client.post(place, data={**form, "token": token}, headers=own)).status_code == 303
    assert (await owner.get(f"/approvals/{asked['id']}")).json()["state"] == "approved"


async def test_high_risk_needs_a_sign_in_of_a_moment_ago_and_a_no_does_not(host: Hosted) -> None:
    owner = await host.tenant("acme")
    person = await host.key("acme", [Scope.APPROVE, Scope.RUN])
    asked = await ask(owner)
    place, form = f"/approvals/{asked['id']}", {"digest": asked["digest"]}
    async with visit(host, person) as visitor:
        await visitor.sign_in()
        async with host.server.database.transaction(EVERYTHING) as transaction:
            await transaction.execute("UPDATE sessions SET signed_in = signed_in - 901")
        assert "Sign in again" in (await visitor.get(place)).text
        assert (await visitor.post(place, **form, verdict="approve")).status_code == 403
        await visitor.sign_in()
        assert "Sign in again" not in (await visitor.get(place)).text
        async with host.server.database.transaction(EVERYTHING) as transaction:
            await transaction.execute("UPDATE sessions SET signed_in = signed_in - 901")
        assert (await visitor.post(place, **form, verdict="deny")).status_code == 303


async def test_a_session_ends_with_its_key_its_time_and_at_the_sign_out(host: Hosted) -> None:
    owner = await host.tenant("acme")
    key = (await owner.post("/keys", json={"name": "person", "scopes": ["run"]})).json()
    async with visit(host, host.client(key["key"])) as visitor:
        signed_in = await visitor.sign_in()
        cookie = signed_in.headers["set-cookie"]
        assert cookie.startswith(f"{COOKIE}=")
        assert all(word in cookie for word in ("HttpOnly", "Path=/;", "SameSite=strict", "Secure"))
        assert (await visitor.get("/")).status_code == 200
        first = visitor.client.headers["Cookie"]
        await visitor.sign_in()
        assert (await visitor.client.get("/", headers={"Cookie": first})).status_code == 303  # a new one each time
        await visitor.post("/sign-out")
        assert (await visitor.get("/")).status_code == 303
        await visitor.sign_in()
        await owner.delete(f"/keys/{key['id']}")
        assert (await visitor.get("/")).status_code == 303
        assert (await visitor.sign_in()).status_code == 401


async def test_a_stream_of_others_code_is_recorded_and_counts_as_a_connection(tmp_path: Path) -> None:
    async with hosted(tmp_path / "state", strict=False, limits={"connections_of_tenant": 2}) as host:
        owner = await host.tenant("acme")
        made = await run(owner)
        person = await host.key("acme", [Scope.AUDIT])
        async with visit(host, person) as visitor:
            await visitor.sign_in()
            place = f"/news?view=run:{made}&after=0"
            async with visitor.client.stream("GET", place) as first, visitor.client.stream("GET", place) as second:
                assert (first.status_code, second.status_code) == (200, 200)
                lines = first.aiter_lines()  # kept: the stream would be closed with it
                while not (await anext(lines)).startswith("data:"):
                    pass
                assert (await visitor.get("/")).status_code == 429
        log = host.server.chains.log_of("acme")
        viewed = [record.data for record in log.find(Query(kind="console.viewed"))]
        assert [(data["what"], data["subject"]) for data in viewed] == [("run", made)]


async def test_what_the_log_cannot_take_is_not_shown(host: Hosted) -> None:
    """Neither by the page nor by its stream, which relies on the record of the page."""
    owner = await host.tenant("acme")
    made = await run(owner)
    log = host.server.chains.log_of("acme")
    async with visit(host, await host.key("acme", [Scope.AUDIT])) as visitor:
        await visitor.sign_in()
        with closing(sqlite3.connect(log.path)) as database:
            refuse = "CREATE TRIGGER refuse BEFORE INSERT ON records BEGIN SELECT RAISE(ABORT, 'no room'); END"
            database.execute(refuse)
            for path in (f"/runs/{made}", f"/news?view=run:{made}&after=0", f"/runs/{made}"):
                async with visitor.client.stream("GET", path) as answer:
                    assert answer.status_code == 503, path
            database.execute("DROP TRIGGER refuse")
        assert (await visitor.get(f"/runs/{made}")).status_code == 200
    assert len(list(log.find(Query(kind="console.viewed")))) == 1


def test_the_console_of_one_user_needs_nothing_of_a_server() -> None:
    code = "import sys, fumehood.server.console.local_host\nprint(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert not {"fastapi", "websockets", "jwt", "psycopg", "nats"} & set(done.stdout.split())


async def test_no_address_leads_out_of_the_console_after_a_sign_in(host: Hosted) -> None:
    api = await host.tenant("acme")
    async with visit(host, api) as visitor:
        for to in (
            "//evil.example",
            "https://evil.example",
            "/../v1",
            "/\\evil",
            "/a//b",
            "javascript:1",
            "/a?b#c",
            "/a?\r\nb",
            "/..?a",
            "//b?c",
            "/a?<b>",
        ):
            data = {"key": visitor.key, "to": to}
            answer = await visitor.client.post("/sign-in", data=data, headers={"Origin": visitor.origin})
            assert answer.headers["location"] == "/console/", to


async def test_a_sign_in_leads_back_to_what_was_asked_for(host: Hosted) -> None:
    api = await host.tenant("acme")
    asked = "/policies/closed/change?attempt=connect%20a.example:443"
    async with visit(host, api) as visitor:
        away = (await visitor.get(asked)).headers["location"]
        field = re.search(r'name="to" value="([^"]*)"', (await visitor.get(away.removeprefix("/console"))).text)
        assert field is not None
        data = {"key": visitor.key, "to": html.unescape(field[1])}
        answer = await visitor.client.post("/sign-in", data=data, headers={"Origin": visitor.origin})
        assert answer.headers["location"] == f"/console{asked}"


class _Numbers:
    key = "numbers"

    def __init__(self) -> None:
        self.made = 0

    async def fragments(self, record: Record) -> list[Fragment]:
        self.made += 1
        return [Fragment(str(record.seq))]


async def test_news_miss_nothing_repeat_nothing_and_are_made_once(host: Hosted) -> None:
    api = await host.tenant("acme")
    await run(api)
    log = host.server.chains.log_of("acme")
    feed, view = NewsFeed(lambda: log), _Numbers()
    start = log.head().seq
    read: list[list[int]] = [[], [], []]
    arrived = asyncio.Event()

    async def follow(place: int, after: int) -> None:
        async for message in feed.stream(view, after):
            if found := re.search(rb"id: (\d+)\ndata: \[\{", message):
                read[place].append(int(found[1]))
                arrived.set()

    async def until(*places: int) -> None:
        end = log.head().seq
        async with asyncio.timeout(30):
            while any(not read[place] or read[place][-1] < end for place in places):
                await arrived.wait()
                arrived.clear()

    readers = [asyncio.ensure_future(follow(place, after)) for place, after in enumerate((start, start, start - 2))]
    for _ in range(3):
        await run(api)
    await until(0, 1, 2)
    for task in readers[1:]:
        task.cancel()
    await asyncio.gather(*readers[1:], return_exceptions=True)
    await run(api)  # while two of them are away
    readers[1] = asyncio.ensure_future(follow(1, read[1][-1]))
    await until(0, 1)
    end = log.head().seq
    feed.close()
    async with asyncio.timeout(10):
        await asyncio.gather(*readers[:2])
    assert read[0] == read[1] == list(range(start + 1, end + 1))
    assert read[2][:2] == [start - 1, start]
    assert view.made == end - start + 2


@pytest.fixture
def provider() -> Iterator[IdentityProviderServer]:
    with identity_provider() as opened:
        yield opened


async def test_people_sign_in_at_their_identity_provider(tmp_path: Path, provider: IdentityProviderServer) -> None:
    corp = {"issuer": provider.issuer, "audience": "fumehood", "tenant": "acme", "client": "console"}
    settings = {"oidc": {"corp": {**corp, "roles": {"developer": ["run", "audit"]}}}, "strict": False}
    async with hosted(tmp_path / "state", **settings) as host:
        api = await host.tenant("acme")
        async with visit(host, api) as visitor:
            assert "Sign in with corp" in (await visitor.get("/sign-in")).text
            left = await visitor.get("/sign-in/with/corp?to=/audit")
            asked = parse_qs(urlsplit(left.headers["location"]).query)
            assert asked["redirect_uri"] == [f"{host.address}/console/sign-in/from/corp"]
            cookie = left.headers["set-cookie"]
            assert "SameSite=lax" in cookie
            own = {"Cookie": cookie.partition(";")[0]}
            code = provider.give_code(asked)
            back = f"/sign-in/from/corp?code={code}&state="
            for state, headers in (("x", own), (asked["state"][0], {})):  # another sign-in, another browser
                assert (await visitor.client.get(back + state, headers=headers)).status_code == 409
            answer = await visitor.client.get(back + asked["state"][0], headers=own)
            assert (answer.status_code, 'url=/console/audit"' in answer.text) == (200, True)
            sent = [each for each in answer.headers.get_list("set-cookie") if each.startswith(f"{COOKIE}=")]
            session = {"Cookie": sent[0].partition(";")[0]}
            shown = await visitor.client.get("/", headers=session)
            assert "user:corp/ada" in shown.text
            assert (await visitor.client.get("/approvals", headers=session)).status_code == 403
            assert (await visitor.client.get(back + asked["state"][0], headers=own)).status_code == 401  # used up
            async with host.server.database.transaction(EVERYTHING) as transaction:
                await transaction.execute("UPDATE sessions SET expires = ?", time.time() - 1)
            assert (await visitor.client.get("/", headers=session)).status_code == 303


async def test_a_silent_sign_in_is_not_a_fresh_one(tmp_path: Path, provider: IdentityProviderServer) -> None:
    """Providers sign in whom they know without asking: when they did ask is what counts, and they have to say it."""
    corp = {"issuer": provider.issuer, "audience": "fumehood", "tenant": "acme", "client": "console"}
    settings = {"oidc": {"corp": {**corp, "roles": {"developer": ["approve"]}}}, "strict": False}
    now = time.time()
    told: list[tuple[dict[str, object], dict[str, object] | None, str]] = [
        ({}, None, "not known"),
        ({}, {}, "not known"),
        ({"auth_time": now - 7200}, {"auth_time": now - 5}, "old"),
        ({"auth_time": now - 60}, None, "fresh"),
        ({}, {"auth_time": now - 60}, "fresh"),
        ({}, {"auth_time": now - 7200}, "old"),
        ({}, {"auth_time": now + 7200}, "old"),
        ({}, {"auth_time": now - 60, "sub": "eve"}, "not known"),
        ({}, {"auth_time": now - 60, "iss": "https://other.example"}, "not known"),
        ({}, {"auth_time": True}, "not known"),
    ]
    async with hosted(tmp_path / "state", **settings) as host:
        api = await host.tenant("acme")
        place = f"/approvals/{(await ask(api))['id']}"
        async with visit(host, api) as visitor:
            for access, identity, state in told:
                provider.access_claims, provider.id_claims = access, identity
                shown = await visitor.client.get(place, headers=await _signed_in_at_provider(visitor, provider))
                assert ("Sign in again" in shown.text) == (state != "fresh"), (access, identity)
                assert ("has not said when" in shown.text) == (state == "not known"), (access, identity)
            visitor.client.headers["Cookie"] = f"{COOKIE}=x"  # who signs in again is asked, and it is told when
            asked = parse_qs(urlsplit((await visitor.get("/sign-in/with/corp")).headers["location"]).query)
            assert (asked["prompt"], asked["max_age"]) == (["login"], ["900"])


async def test_one_provider_signs_in_nobody_of_another(tmp_path: Path, provider: IdentityProviderServer) -> None:
    """Whatever token it answers with, also one that the server believes elsewhere."""
    with identity_provider() as partner:
        partner.published = provider.published
        shared: dict[str, object] = {"audience": "fumehood", "tenant": "acme", "client": "console"}
        shared["roles"] = {"developer": ["run"]}
        issuers = {"corp": {**shared, "issuer": provider.issuer}, "partner": {**shared, "issuer": partner.issuer}}
        async with hosted(tmp_path / "state", oidc=issuers, strict=False) as host:
            await host.tenant("acme")
            for issuer, status in ((provider.issuer, 200), (partner.issuer, 401)):
                provider.access_claims = {"iss": issuer}
                async with visit(host, host.client("none")) as visitor:
                    left = await visitor.get("/sign-in/with/corp")
                    asked = parse_qs(urlsplit(left.headers["location"]).query)
                    own = {"Cookie": left.headers["set-cookie"].partition(";")[0]}
                    back = f"/sign-in/from/corp?code={provider.give_code(asked)}&state={asked['state'][0]}"
                    assert (await visitor.client.get(back, headers=own)).status_code == status, issuer


async def _signed_in_at_provider(visitor: Visit, provider: IdentityProviderServer) -> dict[str, str]:
    """The cookie of a session."""
    left = await visitor.get("/sign-in/with/corp")
    asked = parse_qs(urlsplit(left.headers["location"]).query)
    own = {"Cookie": left.headers["set-cookie"].partition(";")[0]}
    back = f"/sign-in/from/corp?code={provider.give_code(asked)}&state={asked['state'][0]}"
    answer = await visitor.client.get(back, headers=own)
    sent = [each for each in answer.headers.get_list("set-cookie") if each.startswith(f"{COOKIE}=")]
    return {"Cookie": sent[0].partition(";")[0]}


async def test_a_tenant_whose_pages_are_slow_does_not_hold_up_others(host: Hosted) -> None:
    slow, other = await host.tenant("acme"), await host.tenant("other")
    gate = threading.Event()
    blocked = [asyncio.ensure_future(LogThreads("acme")(gate.wait)) for _ in range(100)]
    try:
        async with visit(host, slow) as waits, visit(host, other) as goes_on:
            await waits.sign_in()
            await goes_on.sign_in()
            waiting = asyncio.ensure_future(waits.get("/"))
            async with asyncio.timeout(30):
                for path in ("/", "/audit", "/egress", "/usage"):
                    assert (await goes_on.get(path)).status_code == 200
            assert not waiting.done()
            gate.set()
            assert (await waiting).status_code == 200
    finally:
        gate.set()
        await asyncio.gather(*blocked)


async def test_exports_that_are_slow_do_not_hold_up_others(host: Hosted, monkeypatch: pytest.MonkeyPatch) -> None:
    slow, other = await host.tenant("acme"), await host.tenant("other")
    await set_limit(host.server.database, "acme", Quota.REQUESTS, 1000, "test")
    gate = threading.Event()

    def hang(*_: object) -> Iterator[str]:
        gate.wait()
        yield "{}"

    monkeypatch.setattr("fumehood.server.console.pages.audit.lines", hang)
    async with visit(host, slow) as exports, visit(host, other) as goes_on:
        await exports.sign_in()
        await goes_on.sign_in()
        form, own = {"token": await exports.token()}, {"Origin": exports.origin}

        # More than there are threads in which the server writes to every tenant's log.
        exporting = [
            asyncio.ensure_future(exports.client.post("/audit/export", data=form, headers=own)) for _ in range(45)
        ]
        try:
            assert (await asyncio.wait(exporting, timeout=2))[0] == set()
            async with asyncio.timeout(30):
                await run(other)
                for path in ("/", "/static/console.css"):
                    assert (await goes_on.get(path)).status_code == 200
        finally:
            gate.set()
            await asyncio.gather(*exporting, return_exceptions=True)


async def test_a_provider_that_hangs_holds_up_sign_ins_alone(
    tmp_path: Path, provider: IdentityProviderServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody needs a key to begin one, or any number of them."""
    corp = {"issuer": provider.issuer, "audience": "fumehood", "tenant": "acme", "client": "console", "roles": {}}
    gate = threading.Event()
    monkeypatch.setattr("fumehood.server.identity.code_flow.CodeFlow._document", lambda _: gate.wait() and {})
    async with hosted(tmp_path / "state", oidc={"corp": corp}, strict=False) as host:
        api = await host.tenant("acme")
        async with visit(host, api) as visitor:
            begun = [asyncio.ensure_future(visitor.get("/sign-in/with/corp")) for _ in range(60)]
            try:
                await asyncio.wait(begun, timeout=1)
                assert not any(each.done() for each in begun)
                async with asyncio.timeout(20):
                    assert (await api.get("/approvals")).status_code == 200
                    assert (await visitor.sign_in()).status_code == 303
                    assert (await visitor.get("/")).status_code == 200
            finally:
                gate.set()
                await asyncio.gather(*begun, return_exceptions=True)


async def test_runs_of_others_do_not_crowd_out_those_of_who_sees_only_their_own(host: Hosted) -> None:
    await host.tenant("acme")
    api = await host.key("acme", [Scope.RUN])
    log = host.server.chains.log_of("acme")
    who = f"key:{api.headers['authorization'].split('_')[1]}"
    for number, name in enumerate((who, *("key:other",) * 60)):
        trail = Trail(log, name).within(run=f"run_{number}", sandbox="box_1")
        await trail.write(RunFinished("success", "exit", *(None,) * 10))
    async with visit(host, api) as visitor:
        await visitor.sign_in()
        shown = (await visitor.get("/")).text
        assert re.findall(r'id="row-(\w+)"', shown) == ["run_0"]


async def test_a_stream_ends_when_the_log_cannot_be_read(
    host: Hosted, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As one that is over does: the page asks again, and the server's own log is not filled with it."""
    api = await host.tenant("acme")

    def fail(*_: object) -> list[Record]:
        raise AuditError("it cannot be read")

    async with visit(host, api) as visitor:
        await visitor.sign_in()
        monkeypatch.setattr(NewsFeed, "_read", fail)
        async with visitor.client.stream("GET", "/news?view=now&after=0") as news:
            assert news.status_code == 200
            assert await news.aread() == b"retry: 1000\n\n"
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


async def test_a_page_whose_key_was_revoked_gets_news_for_a_moment_only(
    host: Hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told to ask again, and then that nobody is signed in."""
    owner = await host.tenant("acme")
    key = (await owner.post("/keys", json={"name": "person", "scopes": ["run", "audit"]})).json()
    monkeypatch.setattr("fumehood.server.console.news._STREAM_SECONDS", 0.2)
    async with visit(host, host.client(key["key"])) as visitor:
        await visitor.sign_in()
        place, of_script = "/news?view=now&after=0", {"Sec-Fetch-Mode": "cors"}
        async with asyncio.timeout(30), visitor.client.stream("GET", place, headers=of_script) as news:
            await owner.delete(f"/keys/{key['id']}")
            for _ in range(5):
                await run(owner)  # looks for its end with each record
            assert b"event: again" in await news.aread()
        assert (await visitor.client.get(place, headers=of_script)).status_code == 401


async def test_whatever_is_asked_is_no_failure_of_the_console(host: Hosted) -> None:
    """Every page and every form with values that no page of ours sends."""
    api = await host.tenant("acme")
    await set_limit(host.server.database, "acme", Quota.REQUESTS, 10_000, "test")
    values = ("%00", "%ED%A0%80", "9" * 400, "-1", "%E2%80%AE", "%27%22%3C%25_", "a" * 3000, "%2e%2e%2f", "2026-99-99")
    asked = ("text", "kind", "run", "sandbox", "status", "since", "until", "before", "host", "period", "version")
    fields = (
        "digest",
        "verdict",
        "reason",
        "text",
        "version",
        "beware",
        "name",
        "days",
        "networks",
        "scope-x",
        "quota",
    )
    async with visit(host, api) as visitor:
        await visitor.sign_in()
        token, own = await visitor.token(), {"Origin": visitor.origin}
        own["Content-Type"] = "application/x-www-form-urlencoded"
        for value in values:
            for name in ("now", "run", "task", "tasks", "approval"):
                async with visitor.client.stream("GET", f"/news?view={name}:{value}&after={value}") as news:
                    assert news.status_code < 500, (name, value)
            for route in ROUTES:
                place = re.sub(r"\{\w+\}", value, route.path.replace("{name}", "closed"))
                if route.method == "GET":
                    query = "&".join(f"{name}={value}" for name in asked)
                    for path in (f"{place}?{query}", f"{place}?attempt={value}", f"{place}?version=1&{query}"):
                        assert (await visitor.get(path)).status_code < 500, path
                else:
                    form = f"token={token}&" + "&".join(f"{name}={value}" for name in fields)
                    answer = await visitor.client.post(place, content=form, headers=own)
                    assert answer.status_code < 500, (place, value)


def _picture() -> bytes:
    rows = b"".join(b"\0" + bytes([line * 8] * 16) for line in range(16))
    chunks = (b"IHDR", struct.pack(">IIBBBBB", 16, 16, 8, 0, 0, 0, 0)), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")
    framed = (
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(framed)


async def test_figures_of_a_run_are_pictures_and_for_who_may_see_the_run(host: Hosted) -> None:
    await host.tenant("acme")
    owner, stranger = await host.key("acme", [Scope.RUN]), await host.key("acme", [Scope.RUN])
    reader = await host.key("acme", [Scope.AUDIT])
    log = host.server.chains.log_of("acme")
    who = f"key:{owner.headers['authorization'].split('_')[1]}"
    contents = {"image/png": _picture(), "image/jpeg": b"<script>alert(1)</script>", "text/html": _picture() + b"html"}
    shown = tuple({"display": 1, "type": kind, "content": Attachment(data)} for kind, data in contents.items())
    unknown = (None,) * 10
    trail = Trail(log, who).within(run="run_1", sandbox="box_1")
    await trail.write(RunFinished("success", "exit", *unknown, displays=shown))
    digests = {kind: hashlib.sha256(data).hexdigest() for kind, data in contents.items()}
    async with visit(host, reader) as visitor:
        await visitor.sign_in()
        figure = await visitor.get(f"/runs/run_1/figures/{digests['image/png']}")
        assert (figure.status_code, figure.headers["content-type"]) == (200, "image/png")
        assert figure.headers["content-security-policy"].startswith("default-src 'none'; sandbox")
        assert (figure.headers["x-content-type-options"], figure.headers["cache-control"]) == ("nosniff", "no-store")
        viewed = [record.data["subject"] for record in log.find(Query(kind="console.viewed"))]
        assert viewed == ["run_1"]
        assert f"figures/{digests['image/png']}" in (await visitor.get("/runs/run_1")).text
        not_shown = await visitor.get(f"/runs/run_1/figures/{digests['image/jpeg']}")
        assert (not_shown.status_code, "alert" in not_shown.text) == (422, False)
        for place in (
            f"run_1/figures/{digests['text/html']}",
            f"run_2/figures/{digests['image/png']}",
            "run_1/figures/x",
        ):
            assert (await visitor.get(f"/runs/{place}")).status_code == 404, place
    async with visit(host, stranger) as visitor:
        await visitor.sign_in()
        assert (await visitor.get(f"/runs/run_1/figures/{digests['image/png']}")).status_code == 404


async def test_a_file_that_is_too_large_for_a_figure_is_not_taken_apart(host: Hosted) -> None:
    """Whatever is behind its picture."""
    await host.tenant("acme")
    reader = await host.key("acme", [Scope.AUDIT])
    large = _picture() + bytes(8 * 1024 * 1024)
    shown = ({"display": 1, "type": "image/png", "content": Attachment(large)},)
    trail = Trail(host.server.chains.log_of("acme"), "key:other").within(run="run_1", sandbox="box_1")
    await trail.write(RunFinished("success", "exit", *(None,) * 10, displays=shown))
    async with visit(host, reader) as visitor:
        await visitor.sign_in()
        answer = await visitor.get(f"/runs/run_1/figures/{hashlib.sha256(large).hexdigest()}")
        assert (answer.status_code, "too large" in answer.text) == (422, True)


async def test_a_dangerous_change_is_saved_by_who_has_read_that_it_is(host: Hosted) -> None:
    api = await host.tenant("acme")
    assert (await api.put("/policies/own", json={"text": "version: 1\n"})).status_code == 200
    async with visit(host, api) as visitor:
        await visitor.sign_in()
        shown = (await visitor.get("/policies/own/change?attempt=connect+10.1.2.3:443")).text
        assert "private: true reaches hosts behind the firewall" in shown
        assert "No sandbox of acme opens with it" in shown  # the server has not given it private networks
        assert "I have read" not in shown
        shown = (await visitor.get("/policies/own/change?attempt=connect+169.254.169.254:80")).text
        assert "cloud credentials" in shown
        version, text = _policy_form(shown)
        form = {"version": version, "text": text}
        assert (await visitor.post("/policies/own/save", **form)).status_code == 422
        assert (await visitor.post("/policies/own/save", **form, beware="yes")).status_code == 303


@pytest.mark.parametrize(
    ("before", "after", "is_new"),
    [
        ("{host: '*.a.corp', ports: [443], private: true}", "{host: '*.b.corp', ports: [443], private: true}", True),
        ("{host: '*', ports: [443], methods: [GET]}", "{host: '*', ports: [443]}", True),
        ("{host: '*', ports: [443]}", "{host: a.example, ports: [443]}, {host: '*', ports: [443]}", False),
        ("]}\nenvironment: {index: 'http://a.example/'", "]}\nenvironment: {index: 'http://b.example/'", True),
    ],
)
async def test_a_danger_of_which_anything_differs_is_a_new_one(
    host: Hosted, before: str, after: str, is_new: bool
) -> None:
    api = await host.tenant("acme")
    rules = "version: 1\nnetwork: {{allow: [{}]}}\n"
    text = rules if before.startswith("{") else "version: 1\nnetwork: {{allow: [{}}}\n"
    assert (await api.put("/policies/own", json={"text": text.format(before)})).status_code == 200
    async with visit(host, api) as visitor:
        await visitor.sign_in()
        form = {"version": "1", "text": text.format(after)}
        assert ("I have read" in (await visitor.post("/policies/own/change", **form)).text) == is_new
        assert (await visitor.post("/policies/own/save", **form)).status_code == (422 if is_new else 303)


async def test_an_operator_who_looks_at_a_tenant_is_in_its_log(host: Hosted) -> None:
    await host.tenant("acme")
    watched = await host.tenant("other")
    await run(watched)
    operator = await host.key("acme", [Scope.OPERATE])
    async with visit(host, operator) as visitor:
        await visitor.sign_in()
        assert "Denied on the way out" in (await visitor.get("/tenants/other")).text
    (viewed,) = host.server.chains.log_of("other").find(Query(kind="console.viewed"))
    assert (viewed.data["what"], viewed.parse()["who"]) == ("egress", f"key:{visitor.key.split('_')[1]}")


def _policy_form(page: str) -> tuple[str, str]:
    """The version that a form is made from, and the text in it."""
    version, text = (
        re.search(r'name="version" value="(\d+)"', page),
        re.search(r"<textarea[^>]*>\n(.*?)</textarea>", page, re.DOTALL),
    )
    assert version is not None
    assert text is not None
    return version[1], html.unescape(text[1])


async def test_a_page_that_shows_what_is_not_so_any_more_answers_nothing(host: Hosted) -> None:
    """An approval that was answered elsewhere, a policy of which there is a newer version."""
    api = await host.tenant("acme")
    asked = await ask(api)
    async with visit(host, await host.key("acme", [Scope.RUN, Scope.APPROVE, Scope.POLICIES])) as visitor:
        await visitor.sign_in()
        place, form = f"/approvals/{asked['id']}", {"digest": asked["digest"]}
        assert (await visitor.post(place, **form, verdict="deny")).status_code == 303
        assert (await visitor.post(place, **form, verdict="approve")).status_code == 409
        version, text = _policy_form((await visitor.get("/policies/closed/change")).text)
        assert (await api.put("/policies/closed", json={"text": f"{text}# newer\n"})).status_code == 200
        for action in ("change", "save"):
            stale = await visitor.post(f"/policies/closed/{action}", version=version, text=f"{text}# older\n")
            assert stale.status_code == 409, action
    assert (await api.get(f"/approvals/{asked['id']}")).json()["state"] == "denied"
    assert (await api.get("/policies/closed")).json()["text"].endswith("# newer\n")


async def test_of_two_who_answer_at_once_one_is_told(host: Hosted) -> None:
    """Whatever their answers: what is carried out is what the first one said."""
    owner = await host.tenant("acme")
    scopes = [Scope.RUN, Scope.APPROVE]
    async with visit(host, await host.key("acme", scopes)) as ada, visit(host, await host.key("acme", scopes)) as bob:
        await ada.sign_in()
        await bob.sign_in()
        for _ in range(5):
            asked = await ask(owner)
            place, form = f"/approvals/{asked['id']}", {"digest": asked["digest"]}
            verdicts = {
                "approved": ada.post(place, **form, verdict="approve"),
                "denied": bob.post(place, **form, verdict="deny"),
            }
            answers = dict(zip(verdicts, await asyncio.gather(*verdicts.values()), strict=True))
            assert sorted(answer.status_code for answer in answers.values()) == [303, 409]
            first = next(state for state, answer in answers.items() if answer.status_code == 303)
            assert (await owner.get(f"/approvals/{asked['id']}")).json()["state"] == first


async def test_a_browser_keeps_a_script_under_the_digest_of_its_content_alone(host: Hosted) -> None:
    """A server of another version, behind the same name, has another one."""
    async with visit(host, await host.tenant("acme")) as visitor:
        script = re.search(r'src="/console(/static/console.js\?v=\w+)"', (await visitor.get("/sign-in")).text)
        assert script is not None
        kept = {path: (await visitor.get(path)).headers["cache-control"] for path in (script[1], f"{script[1]}0")}
        assert ["immutable" in each for each in kept.values()] == [True, False]


async def test_of_two_who_save_a_policy_at_once_one_is_told(host: Hosted) -> None:
    api = await host.tenant("acme")
    async with visit(host, api) as visitor:
        await visitor.sign_in()
        version, text = _policy_form((await visitor.get("/policies/closed/change")).text)
        saves = [visitor.post("/policies/closed/save", version=version, text=f"{text}\n# {each}\n") for each in "ab"]
        assert sorted(answer.status_code for answer in await asyncio.gather(*saves)) == [303, 409]


async def test_what_is_judged_of_a_policy_is_the_text_that_the_form_saves(host: Hosted) -> None:
    """YAML ends a line, and a comment, where the page shows a number."""
    api = await host.tenant("acme")
    async with visit(host, api) as visitor:
        await visitor.sign_in()
        version, text = _policy_form((await visitor.get("/policies/closed/change")).text)
        hidden = f"{text.rstrip()}\n# more:\u0085resources: {{timeout: 7s}}\n"
        shown = (await visitor.post("/policies/closed/change", version=version, text=hidden)).text
        assert "⟨U+0085⟩" in shown
        assert "Nothing that is enforced differs" in shown


async def test_an_approver_sees_all_that_a_call_could_reach(host: Hosted) -> None:
    api = await host.tenant("acme")
    commands = "".join(f"    - tool-of-a-rather-long-name-{number}\n" for number in range(200))
    put = await api.put("/policies/long", json={"text": f"commands:\n  allow:\n{commands}"})
    assert put.status_code == 200, put.text
    asked = {"tool": "t", "arguments": {"code": "1"}, "policy": "long", "code": "code"}
    place = f"/approvals/{(await api.post('/approvals', json=asked)).json()['id']}"
    async with visit(host, await host.key("acme", [Scope.APPROVE])) as visitor:
        await visitor.sign_in()
        shown = (await visitor.get(place)).text
        assert all(f"tool-of-a-rather-long-name-{number}" in shown for number in range(200))


async def test_news_of_who_only_runs_say_nothing_of_others(host: Hosted) -> None:
    owner = await host.tenant("acme")
    await ask(owner)
    async with visit(host, await host.key("acme", [Scope.RUN])) as visitor:
        await visitor.sign_in()
        async with visitor.client.stream("GET", "/news?view=tasks&after=0") as news:
            lines = news.aiter_lines()
            told = await anext(line async for line in lines if line.startswith("data:"))
        assert told == "data: []"


async def test_one_key_signs_nobody_else_out(host: Hosted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fumehood.server.console.sessions._MOST_OF_PRINCIPAL", 2)
    owner = await host.tenant("acme")
    async with visit(host, owner) as first, visit(host, await host.key("acme", [Scope.RUN])) as other:
        await first.sign_in()
        kept = list[str]()
        for _ in range(4):
            other.client.headers.pop("Cookie", None)
            await other.sign_in()
            kept.append(other.client.headers["Cookie"])
        assert (await first.get("/")).status_code == 200
        states = [(await other.client.get("/", headers={"Cookie": each})).status_code for each in kept]
        assert states == [303, 303, 200, 200]


async def test_a_number_that_is_none_is_not_a_failure(host: Hosted) -> None:
    async with visit(host, await host.tenant("acme")) as visitor:
        await visitor.sign_in()
        for before in ("9" * 5000, "\u0669", "-1", "x"):
            assert (await visitor.client.get("/audit", params={"before": before})).status_code == 200


@pytest.mark.skipif(os.geteuid() != 0, reason="another user is needed")
def test_the_link_of_one_user_opens_nothing_for_another(tmp_path: Path) -> None:
    """Whoever reads it in the arguments of the browser's process, or gets the cookie at another port."""
    command = [sys.executable, "-m", "fumehood", "console", "--no-browser"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, env={**os.environ, "HOME": str(tmp_path)}
    ) as console:
        try:
            assert console.stdout is not None
            link = urlsplit(console.stdout.readline().strip())
            asked = f"GET {link.path}?{link.query} HTTP/1.1\\r\\nHost: {link.netloc}\\r\\nConnection: close\\r\\n\\r\\n"
            script = f"exec 3<>/dev/tcp/127.0.0.1/{link.port}; printf '{asked}' >&3; head -n1 <&3"
            states = [
                subprocess.run(
                    ["/bin/bash", "-c", script],
                    user=user,
                    capture_output=True,
                    text=True,
                    check=True,
                    timeout=30,
                    cwd="/",
                ).stdout.split()[1]
                for user in (65534, 0, 0)
            ]
        finally:
            console.terminate()
    assert states == ["403", "303", "409"]


_HOLD = """
import socket, sys
held = []
for _ in range(260):
    try:
        held.append(socket.create_connection(("127.0.0.1", int(sys.argv[1])), 5))
    except OSError:
        break
print(len(held), flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="another user is needed")
def test_connections_of_another_user_take_no_place(tmp_path: Path) -> None:
    """They say nothing, and wait."""
    command = [sys.executable, "-m", "fumehood", "console", "--no-browser"]
    python = "/usr/bin/python3"  # that the other user may execute, too
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, env={**os.environ, "HOME": str(tmp_path)}
    ) as console:
        try:
            assert console.stdout is not None
            link = console.stdout.readline().strip()
            hold = [python, "-c", _HOLD, str(urlsplit(link).port)]
            with subprocess.Popen(
                hold, user=65534, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/"
            ) as other:
                assert other.stdout is not None
                assert int(other.stdout.readline()) > 200
                assert httpx.get(link, timeout=30).status_code == 303
                other.communicate("")
        finally:
            console.terminate()


def test_no_language_lets_a_control_character_through() -> None:
    for language in ("", "python", "shell", "javascript", "json", "yaml"):
        shown = str(highlighted("a # b\rc\x1b[1m\x08\n", language))
        assert not set(shown) & set("\r\x1b\x08"), language
