"""Whatever fits the OpenAPI document, and much that does not, is answered, and never with a failure of the server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio.from_thread
import httpx
import pytest
import sampling
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from unit.server.hosting import hosted

from fumehood.server.app import build_api
from fumehood.server.identity.principals import Scope
from fumehood.server.tenants.quotas import Quota, set_limit

DOCUMENT: dict[str, Any] = build_api().openapi()
OPERATIONS = [
    (method.upper(), path, operation)
    for path, operations in sorted(DOCUMENT["paths"].items())
    for method, operation in operations.items()
    # A stranger's tenant would be gone, and its own key with it.
    if (method, path) != ("delete", "/v1/tenants/{name}")
]
WORDS = st.sampled_from(
    ["closed", "TOKEN", "python", "sh", "1s", "64M", "connect a.example:443", "runs", "/tmp/x", "..", ""]
)
TEXT = st.one_of(WORDS, st.text(max_size=20), st.just("\0"), st.just("a" * 5000), st.just("\U0001f600"))
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=8,
)


def fitting(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    if "$ref" in schema:
        return fitting(DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    if "anyOf" in schema:
        return st.one_of(*map(fitting, schema["anyOf"]))
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema.get("type"):
        case "object":
            return _objects(schema)
        case "array":
            return st.lists(fitting(schema.get("items", {})), max_size=3)
        case "string":
            return TEXT
        case "boolean":
            return st.booleans()
        case "integer":
            return st.one_of(st.integers(0, 100), st.integers())
        case "number":
            return st.one_of(st.floats(0, 100), st.floats(allow_nan=False, allow_infinity=False))
        case "null":
            return st.none()
        case _:
            return JSON


def _objects(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    properties, required = schema.get("properties", {}), set(schema.get("required", ()))
    if not properties:
        return st.dictionaries(TEXT, JSON, max_size=3)
    wanted = {name: fitting(each) for name, each in properties.items() if name in required}
    optional = {name: fitting(each) for name, each in properties.items() if name not in required}
    return st.fixed_dictionaries(wanted, optional=optional)


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, str, dict[str, str], Any]:
    method, path, operation = draw(st.sampled_from(OPERATIONS))
    query: dict[str, str] = {}
    for parameter in operation.get("parameters", ()):
        if parameter["in"] == "path":
            value = draw(st.one_of(st.sampled_from(["SANDBOX", "SANDBOX.1", "closed", "acme", "TOKEN", "runs"]), TEXT))
            path = path.replace(f"{{{parameter['name']}}}", value)
        elif parameter.get("required") or draw(st.booleans()):
            query[parameter["name"]] = str(draw(st.one_of(fitting(parameter["schema"]), TEXT)))
    content = operation.get("requestBody", {}).get("content", {}).get("application/json")
    body = draw(st.one_of(fitting(content["schema"]), JSON)) if content else None
    if isinstance(body, dict):
        body.pop("wait", None)  # long questions are asked elsewhere
    query.pop("wait", None)
    return method, path.removeprefix("/v1"), query, body


class Fuzzed:
    def __init__(self, client: httpx.Client, sandbox: str) -> None:
        self.client, self.sandbox = client, sandbox


@pytest.fixture
def fuzzed(tmp_path: Path, database_url: str) -> Iterator[Fuzzed]:
    with (
        anyio.from_thread.start_blocking_portal() as portal,
        portal.wrap_async_context_manager(hosted(tmp_path / "state", database=database_url)) as host,
    ):
        portal.call(host.tenant, "acme")
        for quota in (Quota.REQUESTS, Quota.OPENINGS):
            portal.call(set_limit, host.server.database, "acme", quota, 10_000, "test")
        key = portal.call(host.key, "acme", list(Scope)).headers["authorization"]
        with httpx.Client(base_url=f"{host.address}/v1", headers={"Authorization": key}, timeout=60) as client:
            yield Fuzzed(client, client.post("/sandboxes", json={}).json()["id"])


@pytest.mark.timeout(600)
def test_no_request_makes_the_server_fail(fuzzed: Fuzzed) -> None:
    @settings(
        max_examples=sampling.amount(150, whole=3000),
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    @example(("POST", "/named-sandboxes", {}, {"name": "made", "document": {}}))
    @given(requests())
    def ask(request: tuple[str, str, dict[str, str], Any]) -> None:
        method, path, query, body = request
        place = quote(path.replace("SANDBOX", fuzzed.sandbox), safe="/:")
        answer = fuzzed.client.request(method, place, params=query, json=body)
        assert answer.status_code < 500, (method, path, query, body, answer.text)
        if answer.status_code >= 400:
            assert answer.headers["content-type"] == "application/problem+json", (method, path, answer.text)

    ask()
