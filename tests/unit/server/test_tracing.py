"""Traces of a server: what a collector gets, what records keep, and that a collector which is away changes nothing."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from record_receivers import HttpReceiver, http_receiver, listen
from unit.server.hosting import Hosted, hosted

from fumehood.audit.records import Record
from fumehood.audit.spans import send
from fumehood.audit.store import Query
from fumehood.server.e2b.templates import BASE, BASE_POLICY
from fumehood.server.identity.keys import create_key, e2b_spelling
from fumehood.server.identity.principals import OF_TENANTS
from fumehood.server.tenants.catalogue import put_policy

pytestmark = pytest.mark.anyio
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_TRACES_SAMPLER"):
        monkeypatch.delenv(name, raising=False)


def requested(host: Hosted) -> list[Record]:
    return list(host.server.chains.log_of("acme").find(Query(kind="run.requested")))


async def run(client: httpx.AsyncClient, *parents: str) -> None:
    sandbox = (await client.post("/sandboxes", json={}, headers=[("traceparent", each) for each in parents])).json()
    headers = [("traceparent", each) for each in parents]
    answer = await client.post(f"/sandboxes/{sandbox['id']}/runs", json={"code": "print(1)"}, headers=headers)
    assert answer.json()["stdout"] == "1\n"


def received(receiver: HttpReceiver) -> Iterator[Any]:
    while not receiver.requests.empty():
        for resource in ExportTraceServiceRequest.FromString(receiver.requests.get()[1]).resource_spans:
            for scope in resource.scope_spans:
                yield from scope.spans


async def test_a_collector_gets_requests_openings_and_runs_in_the_trace_of_the_client(tmp_path: Path) -> None:
    with http_receiver() as receiver:
        async with hosted(tmp_path / "state", traces={"endpoint": receiver.url}) as host:
            await run(await host.tenant("acme"), PARENT)
            (record,) = requested(host)
        spans = {span.name: span for span in received(receiver)}
    assert {span.trace_id.hex() for span in spans.values()} == {TRACE}
    opening, running = spans["POST /sandboxes"], spans["POST /sandboxes/{id}/runs"]
    assert opening.parent_span_id.hex() == running.parent_span_id.hex() == SPAN
    assert spans["open sandbox"].parent_span_id == opening.span_id
    assert spans["execute_tool"].parent_span_id == running.span_id
    attributes = {each.key: each.value.string_value or each.value.int_value for each in running.attributes}
    assert (attributes["fumehood.tenant"], attributes["http.response.status_code"]) == ("acme", 200)
    # The record says which span asked for the run, and a span that is made of it later has that parent.
    assert record.parse()["ids"]["trace"] == f"00-{TRACE}-{running.span_id.hex()}-01"


async def test_without_a_collector_records_have_the_client_s_trace_and_exported_spans_its_parent(
    tmp_path: Path,
) -> None:
    async with hosted(tmp_path / "state") as host:
        client = await host.tenant("acme")
        await run(client, PARENT)
        for wrong in ((f"00-{'0' * 32}-{SPAN}-01",), ("01-x",), (PARENT, PARENT), (PARENT.upper(),), ()):
            await run(client, *wrong)
        log = host.server.chains.log_of("acme")
        traces = [record.parse()["ids"].get("trace") for record in requested(host)]
        assert traces == [PARENT, None, None, None, None, None]
        exporter = InMemorySpanExporter()
        assert send(log.find(Query()), exporter) == 6
    first, *others = exporter.get_finished_spans()
    assert first.parent is not None
    assert (f"{first.parent.trace_id:032x}", f"{first.parent.span_id:016x}") == (TRACE, SPAN)
    assert [span.parent for span in others] == [None] * 5


async def test_a_program_with_e2b_s_sdk_continues_its_trace_as_well(tmp_path: Path) -> None:
    async with hosted(tmp_path / "state", e2b="127.0.0.1:0") as host:
        await host.tenant("acme")
        database = host.server.database
        await put_policy(database, "acme", BASE, BASE_POLICY, "test")
        key, _ = await create_key(database, "acme", "test", OF_TENANTS)
        address = host.listener.e2b_address
        assert address is not None
        async with httpx.AsyncClient(base_url=address, timeout=60, verify=False) as client:
            opened = await client.post("/sandboxes", json={}, headers={"X-API-KEY": e2b_spelling(key)})
            assert opened.status_code == 201, opened.text
            headers = {
                "E2b-Sandbox-Id": opened.json()["sandboxID"],
                "E2b-Sandbox-Port": "49999",
                "X-Access-Token": opened.json()["envdAccessToken"],
                "traceparent": PARENT,
            }
            assert (await client.post("/execute", json={"code": "1"}, headers=headers)).status_code == 200
        assert PARENT in {record.parse()["ids"].get("trace") for record in requested(host)}


async def test_a_collector_that_is_away_or_hangs_changes_nothing(tmp_path: Path) -> None:
    with listen() as silent:  # takes connections into its queue, and never answers
        port = silent.getsockname()[1]
        async with hosted(tmp_path / "state", traces={"endpoint": f"http://127.0.0.1:{port}/v1/traces"}) as host:
            await run(await host.tenant("acme"), PARENT)
        async with asyncio.timeout(60):
            async with hosted(tmp_path / "other", traces={"endpoint": "http://127.0.0.1:9/v1/traces"}) as host:
                await run(await host.tenant("acme"))


def test_without_traces_opentelemetry_s_sdk_is_not_imported() -> None:
    code = "import sys, fumehood.server.app, fumehood.server.lifetime; print('opentelemetry.sdk' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
