"""The HTTP API as its clients see it, over a socket, with real sandboxes."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import time
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from live.loaded_hood import run_hood
from starlette.responses import Response
from unit.server.hosting import Hosted, hosted

from fumehood.audit.records import Record
from fumehood.audit.store import Query
from fumehood.server.api.idempotency import IdempotentAnswers
from fumehood.server.app import build_api
from fumehood.server.chains import AuditChains
from fumehood.server.identity.keys import create_key
from fumehood.server.identity.principals import Principal, Scope
from fumehood.server.tenants.catalogue import list_policies
from fumehood.server.tenants.quotas import Quota, set_limit

pytestmark = pytest.mark.anyio
DOCUMENT: dict[str, Any] = build_api().openapi()
OPERATIONS = [
    (method.upper(), path, operation)
    for path, operations in DOCUMENT["paths"].items()
    for method, operation in operations.items()
]
PROBLEM = "application/problem+json"


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Hosted]:
    async with hosted(tmp_path / "state") as server:
        yield server


async def open_sandbox(client: httpx.AsyncClient, **wanted: object) -> str:
    answer = await client.post("/sandboxes", json=wanted)
    assert answer.status_code == 201, answer.text
    return answer.json()["id"]


async def test_a_sandbox_is_opened_used_and_closed(host: Hosted) -> None:
    client = await host.tenant("acme")
    sandbox = await open_sandbox(client, policy="build", metadata={"task": "7"})
    assert [each["metadata"] for each in (await client.get("/sandboxes")).json()] == [{"task": "7"}]
    run = f"/sandboxes/{sandbox}/runs"
    assert (await client.post(run, json={"code": "print(6 * 7)"})).json()["stdout"] == "42\n"
    assert (await client.put(f"/sandboxes/{sandbox}/files/a.txt", content=b"x")).status_code == 204
    assert (await client.post(run, json={"argv": ["cat", "a.txt"]})).json()["stdout"] == "x"
    assert [each["name"] for each in (await client.get(f"/sandboxes/{sandbox}/list")).json()["entries"]] == ["a.txt"]
    for kind in ("application/x-ndjson", "text/event-stream"):
        streamed = await client.post(run, json={"code": "print('é', end='')"}, headers={"Accept": kind})
        assert streamed.headers["content-type"].startswith(kind)
        assert json.dumps("é") in streamed.text
        assert '"status": "success"' in streamed.text
    refused = await client.post(run, json={"code": "1", "language": "no"}, headers={"Accept": "text/event-stream"})
    assert (refused.status_code, refused.headers["content-type"]) == (422, PROBLEM)
    for _ in range(2):
        assert (await client.delete(f"/sandboxes/{sandbox}")).status_code == 204
    gone = await client.post(run, json={"code": "1"})
    assert (gone.status_code, gone.json()["cause"]) == (410, "closed")
    assert (await client.get(f"/sandboxes/{sandbox}")).status_code == 410


async def test_a_run_in_the_background_is_fed_read_and_ended(host: Hosted) -> None:
    client = await host.tenant("acme")
    sandbox = await open_sandbox(client)
    code = "while True: print('got', input(), flush=True)"
    started = await client.post(f"/sandboxes/{sandbox}/runs", json={"code": code, "background": True})
    assert started.status_code == 202
    run = f"/runs/{started.json()['id']}"
    assert (await client.post(f"{run}/input", json={"data": "it\n"})).status_code == 204
    output = ""
    while output != "got it\n":  # which arrives in one piece, or in several
        new = (await client.get(f"{run}/output", params={"wait": 30})).json()["stdout"]
        assert new, output
        output += new
    assert (await client.get(run)).json()["is_over"] is False
    ended = (await client.post(f"{run}/cancel")).json()
    assert (ended["is_over"], ended["result"]["status"]) == (True, "cancelled")
    assert (await client.get(f"/runs/{sandbox}.99")).status_code == 404
    # One that no client asks for again is recorded when it ends, and holds no quota.
    await client.post(f"/sandboxes/{sandbox}/runs", json={"argv": ["true"], "background": True})
    log, finished = host.server.chains.log_of("acme"), 0
    async with asyncio.timeout(60):
        while finished < 2:
            await client.get("/health/live")
            finished = len(list(log.find(Query(kind="run.finished"))))
    assert finished == 2


async def test_files_leave_only_as_the_policy_says_and_with_their_digest(host: Hosted) -> None:
    client = await host.tenant("acme")
    text = "version: 1\nfilesystem: {outputs: ['out/**']}\n"
    assert (await client.put("/policies/mine", json={"text": text})).status_code == 200
    sandbox = await open_sandbox(client, policy="mine")
    for name in ("out/a", "b"):
        assert (await client.put(f"/sandboxes/{sandbox}/files/{name}", content=b"hello")).status_code == 204
    read = await client.get(f"/sandboxes/{sandbox}/files/out/a")
    assert read.content == b"hello"
    assert read.headers["repr-digest"] == "sha-256=:LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=:"
    assert (await client.get(f"/sandboxes/{sandbox}/files/b")).status_code == 403
    assert (await client.get(f"/sandboxes/{sandbox}/files/out/none")).status_code == 404
    assert (await client.delete(f"/sandboxes/{sandbox}/files/b")).status_code == 204


async def test_a_large_file_is_recorded_before_its_first_byte_leaves_and_again_before_its_last(host: Hosted) -> None:
    client = await host.tenant("acme")
    text = "version: 1\nfilesystem: {outputs: ['**']}\n"
    assert (await client.put("/policies/mine", json={"text": text})).status_code == 200
    place = f"/sandboxes/{await open_sandbox(client, policy='mine')}/files/x"
    log = host.server.chains.log_of("acme")

    def recorded() -> list[str]:
        return [record.kind for record in log.find(Query(kind="file")) if record.kind != "file.in"]

    content = random.randbytes(12 * 1024 * 1024)
    assert (await client.put(place, content=content)).status_code == 204
    async with client.stream("GET", place) as answer:
        assert (answer.headers["content-length"], "repr-digest" in answer.headers) == (str(len(content)), False)
        chunks = answer.aiter_raw()
        read = len(await anext(chunks))
        assert recorded() == ["file.begun"]
        read += sum([len(chunk) async for chunk in chunks])
    assert (read, recorded()) == (len(content), ["file.begun", "file.out"])
    asked = await client.get(place, headers={"Want-Repr-Digest": "sha-512=0, sha-256=5"})
    digest = b64encode(hashlib.sha256(content).digest()).decode()
    assert (asked.headers["repr-digest"], asked.content) == (f"sha-256=:{digest}:", content)
    async with client.stream("GET", place) as answer:
        await anext(answer.aiter_raw())
    async with asyncio.timeout(30):
        while recorded()[4:] != ["file.begun", "file.broken"]:
            await client.get("/health/live")


async def test_a_policy_is_changed_tested_explained_and_compared(host: Hosted) -> None:
    client = await host.tenant("acme")
    for memory in ("64M", "32M"):
        await client.put("/policies/mine", json={"text": f"version: 1\nresources: {{memory: {memory}}}\n"})
    assert (await client.get("/policies/mine/diff", params={"from": 1})).json() == {
        "changes": ["lowers memory 64M -> 32M"]
    }
    assert (await client.get("/policies/mine", params={"version": 1})).json()["text"].endswith("64M}\n")
    failing = "version: 1\ntests: [{connect: 'a.example:443', expect: allow}]\n"
    assert (await client.post("/policies/mine:test", json={"text": failing})).json()["passed"] is False
    refused = await client.put("/policies/mine", json={"text": failing})
    assert (refused.status_code, len(refused.json()["problems"])) == (422, 1)
    explained = await client.post("/policies/mine:explain", json={"attempt": "connect a.example:443"})
    assert explained.json()["allowed"] is False
    more = await client.post("/sandboxes", json={"policy": "mine", "resources": {"memory": "64M"}})
    assert (more.status_code, "can have less, not more" in more.json()["detail"]) == (403, True)


async def test_an_approval_is_given_by_another_key_for_what_was_shown(host: Hosted) -> None:
    agent = await host.tenant("acme")
    person = await host.key("acme", [Scope.APPROVE])
    asked = {"tool": "shell", "arguments": {"command": "rm -r /"}, "policy": "closed", "code": "command"}
    question = (await agent.post("/approvals", json=asked)).json()
    place, yes = f"/approvals/{question['id']}", {"approved": True, "digest": question["digest"]}
    assert (await agent.post(place, json=yes)).status_code == 403
    assert (await person.post(place, json={**yes, "digest": "sha256:0"})).status_code == 409
    assert (await agent.post(f"{place}:use", json={"digest": question["digest"]})).status_code == 403
    assert (await person.get("/approvals")).json() == [question]
    assert (await person.post(place, json=yes)).json()["state"] == "approved"
    assert (await person.post(place, json={**yes, "approved": False})).status_code == 409
    assert (await agent.post(f"{place}:use", json={"digest": question["digest"]})).json()["state"] == "used"
    assert (await agent.post(f"{place}:use", json={"digest": question["digest"]})).status_code == 403


async def test_a_key_that_makes_keys_does_not_answer_itself_with_one_of_them(host: Hosted) -> None:
    owner = await host.tenant("acme")

    async def made(by: httpx.AsyncClient, *scopes: str) -> httpx.AsyncClient:
        return host.client((await by.post("/keys", json={"name": "k", "scopes": scopes})).json()["key"])

    asking, answering = await made(owner, "run"), await made(owner, "approve", "keys")
    grandchild = await made(answering, "approve")
    person = await host.key("acme", [Scope.APPROVE])
    for who, others in ((owner, (answering, grandchild)), (asking, (owner, answering, grandchild))):
        question = (await who.post("/approvals", json={"tool": "t", "arguments": {}, "policy": "closed"})).json()
        yes = {"approved": True, "digest": question["digest"]}
        for other in others:
            refused = await other.post(f"/approvals/{question['id']}", json=yes)
            assert (refused.status_code, "count as one" in refused.json()["detail"]) == (403, True)
        assert (await person.post(f"/approvals/{question['id']}", json=yes)).json()["state"] == "approved"


async def test_the_records_of_a_tenant_verify_and_reading_them_is_recorded(host: Hosted, tmp_path: Path) -> None:
    client, other = await host.tenant("acme"), await host.tenant("other")
    await client.delete(f"/sandboxes/{await open_sandbox(client)}")
    kinds = [record["kind"] for record in (await client.get("/audit/records")).json()]
    assert {"sandbox.opened", "sandbox.closed"} <= {*kinds}
    assert "sandbox.opened" not in {record["kind"] for record in (await other.get("/audit/records")).json()}
    export = await client.get("/audit/export")
    (tmp_path / "export").write_bytes(export.content)
    (tmp_path / "key").write_text((await client.get("/audit/key")).text)
    verify = ("audit", "verify", "export", "--key", "key")
    done = await asyncio.to_thread(run_hood, *verify, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    log = host.server.chains.own().log
    assert log is not None
    read = [(record.data["how"], record.parse()["tenant"]) for record in log.find(Query(kind="records.read"))]
    assert read == [("records", "acme"), ("records", "other"), ("export", "acme")]


async def test_a_key_makes_no_key_with_more_scopes_and_a_secret_is_never_read_back(host: Hosted) -> None:
    client = await host.tenant("acme")
    refused = await client.post("/keys", json={"name": "up", "scopes": ["operate"]})
    assert (refused.status_code, refused.json()["scope"]) == (403, "operate")
    made = (await client.post("/keys", json={"name": "ci", "scopes": ["run"], "days": 1})).json()
    assert (await host.client(made["key"]).get("/sandboxes")).status_code == 200
    assert (await client.delete(f"/keys/{made['id']}")).status_code == 204
    assert (await host.client(made["key"]).get("/sandboxes")).status_code == 401
    assert (await client.put("/secrets/TOKEN", json={"value": "hunter2"})).status_code == 204
    listed = await client.get("/secrets")
    assert ([each["name"] for each in listed.json()], "hunter2" in listed.text) == (["TOKEN"], False)


async def test_a_repeated_request_gets_the_first_answer_and_does_nothing(host: Hosted) -> None:
    client = await host.tenant("acme")
    sandbox, key = await open_sandbox(client), {"Idempotency-Key": "a-1"}
    code = "import os; open('n', 'a').write('x'); print(os.path.getsize('n'))"
    first = await client.post(f"/sandboxes/{sandbox}/runs", json={"code": code}, headers=key)
    again = await client.post(f"/sandboxes/{sandbox}/runs", json={"code": code}, headers=key)
    assert (first.json()["stdout"], again.content, again.status_code) == ("1\n", first.content, 200)
    other = await client.post(f"/sandboxes/{sandbox}/runs", json={"code": "2"}, headers=key)
    assert other.status_code == 422
    # Another key of the tenant has other scopes, and so other answers.
    second = await host.key("acme", [Scope.RUN])
    assert (await second.post(f"/sandboxes/{sandbox}/runs", json={"code": "1"}, headers=key)).status_code == 200
    at_once = await asyncio.gather(
        *(client.post("/sandboxes", json={}, headers={"Idempotency-Key": "b"}) for _ in range(4))
    )
    assert {answer.status_code for answer in at_once} <= {201, 409}
    assert len((await client.get("/sandboxes")).json()) == 2
    database = host.server.database
    async with database.transaction("acme") as transaction:
        kept = str(await transaction.rows("SELECT * FROM answers"))
    assert at_once[0].json().get("token", "none") not in kept


async def test_answers_that_are_kept_have_a_limit_for_each_tenant(tmp_path: Path) -> None:
    async with hosted(tmp_path / "state", limits={"answers_of_tenant": "64K"}) as host:
        client, other = await host.tenant("acme"), await host.tenant("umbrella")
        sandbox = await open_sandbox(client)
        run = {"code": "print('x' * 40_000)"}
        answers = [
            await client.post(f"/sandboxes/{sandbox}/runs", json=run, headers={"Idempotency-Key": str(number)})
            for number in range(3)
        ]
        assert [answer.status_code for answer in answers] == [200, 429, 429]
        assert "Retry-After" in answers[2].headers
        again = await client.post(f"/sandboxes/{sandbox}/runs", json=run, headers={"Idempotency-Key": "0"})
        assert again.content == answers[0].content
        assert (await client.post(f"/sandboxes/{sandbox}/runs", json=run)).status_code == 200
        assert (await other.post("/sandboxes", json={}, headers={"Idempotency-Key": "2"})).status_code == 201


async def test_no_caller_gets_the_answer_that_is_anothers(host: Hosted) -> None:
    """Names of users may have blanks, as keys of requests do."""
    await host.tenant("acme")

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        await Response(scope["state"]["principal"].name)(scope, receive, send)

    async def ask(user: str, key: str) -> bytes:
        client = httpx.AsyncClient(transport=httpx.ASGITransport(as_user(user)), base_url="http://server")
        return (await client.post("/v1/keys", headers={"Idempotency-Key": key})).content

    def as_user(user: str) -> Any:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            scope["state"] = {"principal": Principal("acme", user, frozenset())}
            await IdempotentAnswers(inner, lambda: host.server)(scope, receive, send)

        return app

    assert await ask("user:corp/eve key", "1") == b"user:corp/eve key"
    assert await ask("user:corp/eve", "key 1") == b"user:corp/eve"


async def test_versions_of_policies_have_a_limit_and_are_listed_without_texts(host: Hosted) -> None:
    client = await host.tenant("acme")
    text = f"version: 1\n# {'x' * 60_000}\n"
    assert (await client.put("/policies/mine", json={"text": text})).status_code == 200
    async with host.server.database.transaction("acme") as transaction:
        for version in range(2, 70):
            row = ("acme", "mine", version, text, "", "me", 0.0)
            await transaction.execute("INSERT INTO policies VALUES (?,?,?,?,?,?,?)", *row)
    assert (await client.put("/policies/mine", json={"text": f"{text}# more"})).status_code == 422
    assert not any(entry.text for entry in await list_policies(host.server.database, "acme"))
    assert (await client.get("/policies/mine", params={"version": 1})).json()["text"] == text
    assert (await client.get("/policies/mine", params={"version": 99})).status_code == 404


async def test_a_policy_that_takes_long_to_read_and_try_holds_up_its_own_tenant_alone(host: Hosted) -> None:
    client, other = await host.tenant("acme"), await host.tenant("umbrella")
    rules = ",".join(f"'a{number} *'" for number in range(1500))
    tests = "".join(f"- {{command: 'ls -l {number}', expect: allow}}\n" for number in range(1000))
    slow = f"version: 1\ncommands: {{deny: [{rules}]}}\ntests:\n{tests}"
    asked = asyncio.ensure_future(client.post("/policies/closed:test", json={"text": slow}))
    answered = 0
    while not asked.done():
        answered += (await other.get("/whoami")).status_code == 200
    refused = await asked
    assert (refused.status_code, "fewer" in refused.text) == (422, True)
    assert answered > 5
    long = await client.post("/policies/closed:test", json={"text": "# " + "x" * 100_000})
    assert long.status_code == 422


async def test_many_that_ask_whether_it_is_ready_cost_the_disk_one_look(tmp_path: Path) -> None:
    class CountedChains(AuditChains):
        looks = 0

        def check_room(self) -> None:
            self.looks += 1
            super().check_room()

    chains = CountedChains(tmp_path)
    await asyncio.gather(*(chains.look_for_room() for _ in range(50)))
    assert chains.looks == 1


@pytest.mark.parametrize(
    ("wanted", "status"),
    [
        ({}, 422),
        ({"days": 0.5}, 422),
        ({"networks": ["127.0.0.0/9"]}, 422),
        ({"days": 2, "networks": ["127.0.0.0/9"]}, 422),
        ({"days": 0.5, "networks": ["127.0.0.0/9", "10.0.0.0/8"]}, 422),
        ({"days": 0.5, "networks": ["127.0.0.0/9"]}, 201),
    ],
)
async def test_a_key_makes_none_that_outlives_it_or_is_good_elsewhere(
    host: Hosted, wanted: dict[str, Any], status: int
) -> None:
    await host.tenant("acme")
    limits: dict[str, Any] = {"expires": time.time() + 86400, "networks": ["127.0.0.0/8", "::1/128"]}
    key, _ = await create_key(host.server.database, "acme", "short", [Scope.KEYS], **limits)
    answer = await host.client(key).post("/keys", json={"name": "heir", "scopes": ["keys"], **wanted})
    assert answer.status_code == status, answer.text


async def test_quotas_answer_429_with_what_how_much_and_until_when(host: Hosted) -> None:
    client = await host.tenant("acme")
    await set_limit(host.server.database, "acme", Quota.SANDBOXES, 1, "ada")
    await open_sandbox(client)
    full = await client.post("/sandboxes", json={})
    assert full.status_code == 429
    assert {name: full.json()[name] for name in ("quota", "limit", "used", "set_by")} == {
        "quota": "sandboxes",
        "limit": 1,
        "used": 1,
        "set_by": "ada",
    }
    await set_limit(host.server.database, "acme", Quota.REQUESTS, 0.001, "ada")
    host.server.requests.forget("acme")
    answers = [await client.get("/quotas") for _ in range(3)]
    assert answers[-1].status_code == 429
    assert int(answers[-1].headers["retry-after"]) > 900
    assert (await (await host.tenant("other")).get("/quotas")).status_code == 200


async def test_each_route_wants_the_scope_that_its_document_names(host: Hosted) -> None:
    await host.tenant("acme")
    clients = {scope: await host.key("acme", [each for each in Scope if each is not scope]) for scope in Scope}
    await set_limit(host.server.database, "acme", Quota.REQUESTS, 1000, "test")
    seen = set[str]()
    for method, path, operation in OPERATIONS:
        wanted = operation.get("x-scope")
        if wanted is None:
            continue
        answer = await clients[Scope(wanted)].request(method, _filled(path, "x"), json=_body(operation))
        assert (answer.status_code, answer.json()["scope"]) == (403, wanted), (method, path, answer.text)
        seen.add(wanted)
    assert seen == {scope.value for scope in Scope}
    unscoped = {path for _, path, operation in OPERATIONS if operation.get("x-scope") is None}
    assert unscoped == {
        *("/v1/quotas", "/v1/usage", "/v1/whoami", "/v1/approvals/{id}"),
        *("/v1/health/live", "/v1/health/ready"),
    }
    anonymous = host.client(None)
    for method, path, _ in OPERATIONS:
        status = (await anonymous.request(method, _filled(path, "x"))).status_code
        assert status == (200 if path.startswith("/v1/health/") else 401), (method, path)


async def test_a_foreign_id_answers_as_one_that_never_was(host: Hosted) -> None:
    """Every route with an id, byte by byte. Operators' routes are not of one tenant."""
    owner, stranger = await host.tenant("acme"), await host.tenant("other")
    sandbox = await open_sandbox(owner)
    started = await owner.post(f"/sandboxes/{sandbox}/runs", json={"argv": ["sleep", "60"], "background": True})
    await owner.put("/policies/mine", json={"text": "version: 1\n"})
    await owner.put("/secrets/TOKEN", json={"value": "x"})
    key = (await owner.post("/keys", json={"name": "k", "scopes": ["run"]})).json()["id"]
    await owner.post("/named-sandboxes", json={"name": "work"})
    assert (await owner.post("/named-sandboxes/work/snapshots", json={"name": "base"})).status_code == 201
    asked = await owner.post("/approvals", json={"tool": "t", "arguments": {}, "policy": "closed"})
    ids = {
        "/v1/sandboxes/": (sandbox, "sbx_00000000000000000000"),
        "/v1/runs/": (started.json()["id"], "sbx_00000000000000000000.1"),
        "/v1/policies/": ("mine", "none"),
        "/v1/secrets/": ("TOKEN", "NONE"),
        "/v1/keys/": (key, "aaaaaaaa"),
        "/v1/named-sandboxes/": ("work", "none"),
        "/v1/snapshots/": ("base", "none"),
        "/v1/approvals/": (asked.json()["id"], "ask_0000000000000000"),
    }
    await set_limit(host.server.database, "other", Quota.REQUESTS, 1000, "test")
    host.server.requests.forget("other")
    compared = 0
    for method, path, operation in OPERATIONS:
        if "{" not in path or operation.get("x-scope") == "operate":
            continue
        if method == "PUT" and path.endswith(("policies/{name}", "secrets/{name}", "/archive")):
            continue  # makes one of the stranger's own
        foreign, never = next(pair for prefix, pair in ids.items() if path.startswith(prefix))
        answers = [
            await stranger.request(method, _filled(path, each), json=_body(operation), params={"from": 1})
            for each in (foreign, never)
        ]
        shown = [
            (answer.status_code, answer.content, {k: v for k, v in answer.headers.items() if k != "date"})
            for answer in answers
        ]
        assert shown[0] == shown[1], (method, path)
        assert shown[0][0] == 404, (method, path, shown[0])
        compared += 1
    assert compared >= 20
    assert (await owner.get(f"/sandboxes/{sandbox}")).status_code == 200


async def test_what_the_framework_refuses_is_a_problem_too(host: Hosted) -> None:
    client = await host.tenant("acme")
    for method, path, status in (
        ("GET", "/nothing", 404),
        ("PATCH", "/sandboxes", 405),
        ("POST", "/sandboxes", 422),
        ("GET", "/sandboxes/%00", 422),
        ("GET", "/sandboxes/", 404),
    ):
        answer = await client.request(method, path, content=b"{")
        assert (answer.status_code, answer.headers["content-type"]) == (status, PROBLEM), (path, answer.text)
    unknown = await client.post("/sandboxes", json={"polcy": "x"})
    assert unknown.json()["detail"] == "body.polcy: Extra inputs are not permitted"


async def test_other_hosts_origins_and_bodies_are_refused(tmp_path: Path) -> None:
    limits = {"body": "1K", "body_time": "1s", "headers_time": "1s"}
    async with hosted(tmp_path / "state", limits=limits) as host:
        client = await host.tenant("acme")
        assert (await client.get("/health/live", headers={"Host": "evil.example"})).status_code == 421
        assert (await client.get("/health/live", headers={"Origin": "http://evil.example"})).status_code == 403
        assert (await client.post("/tenants", content=b"x" * 2000)).status_code == 413

        async def chunks() -> AsyncIterator[bytes]:
            for _ in range(20):
                yield b" " * 100

        json_kind = {"Content-Type": "application/json"}
        assert (await client.post("/sandboxes", content=chunks(), headers=json_kind)).status_code == 413
        port = int(host.address.rpartition(":")[2])
        key = client.headers["authorization"]
        head = f"POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nAuthorization: {key}\r\n"
        slow_body = f"{head}Content-Type: application/json\r\nContent-Length: 9\r\n\r\n{{"
        # A body that stops gets an answer, and headers that stop get none; neither keeps its connection.
        assert b"408" in await _sent(port, slow_body.encode())
        assert await _sent(port, head.encode()) == b""
        assert await _sent(port, b"") == b""


async def _sent(port: int, data: bytes) -> bytes:
    """What comes back until the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    async with asyncio.timeout(60):
        answer = await reader.read()
    writer.close()
    return answer


async def test_a_client_that_leaves_ends_its_run(host: Hosted) -> None:
    client = await host.tenant("acme")
    sandbox = await open_sandbox(client)
    run = {"code": "import time; print('on', flush=True); time.sleep(60)", "timeout": 30}
    async with client.stream(
        "POST", f"/sandboxes/{sandbox}/runs", json=run, headers={"Accept": "application/x-ndjson"}
    ) as stream:
        async for line in stream.aiter_lines():
            assert '"on' in line
            break
    log = host.server.chains.log_of("acme")
    # The server goes on meanwhile, and finds out that the client has left.
    finished: list[Record] = []
    async with asyncio.timeout(60):
        while not finished:
            await client.get("/health/live")
            finished = list(log.find(Query(kind="run.finished")))
    assert finished[0].data["status"] == "cancelled"


async def test_a_draining_server_opens_nothing_and_ends_when_its_sandboxes_have(tmp_path: Path) -> None:
    async with hosted(tmp_path / "state") as host:
        client = await host.tenant("acme")
        sandbox = await open_sandbox(client)
        host.listener.stop()
        assert (await client.get("/health/ready")).status_code == 503
        refused = await client.post("/sandboxes", json={})
        assert (refused.status_code, "retry-after" in refused.headers) == (503, True)
        assert (await client.post(f"/sandboxes/{sandbox}/runs", json={"code": "1"})).status_code == 200
        await client.delete(f"/sandboxes/{sandbox}")


async def test_metrics_count_by_route_and_not_by_path(host: Hosted) -> None:
    client = await host.tenant("acme")
    await client.get("/sandboxes/sbx_1")
    await client.get("/nothing")
    metrics = (await (await host.key("acme", [Scope.OPERATE])).get("/metrics")).text
    assert 'fumehood_requests_total{method="GET",route="/sandboxes/{id}",status="404"} 1\n' in metrics
    assert 'route="none",status="404"} 1\n' in metrics
    assert "sbx_1" not in metrics


def _filled(path: str, value: str) -> str:
    for name in ("{id}", "{name}"):
        path = path.replace(name, value)
    return path.removeprefix("/v1").replace("{path}", "x").replace("{quota}", "runs")


def _body(operation: dict[str, Any]) -> object:
    """The smallest body that the document lets pass."""
    content = operation.get("requestBody", {}).get("content", {}).get("application/json")
    return _sample(content["schema"]) if content else None


def _sample(schema: dict[str, Any]) -> Any:
    if "$ref" in schema:
        return _sample(DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    if "anyOf" in schema:
        return _sample(schema["anyOf"][0])
    if "enum" in schema:
        return schema["enum"][0]
    match schema.get("type"):
        case "object":
            properties = schema.get("properties", {})
            return {name: _sample(properties[name]) for name in schema.get("required", ())}
        case "array":
            return [_sample(schema["items"])]
        case "string":
            return "x"
        case "boolean":
            return True
        case _:
            return 1
