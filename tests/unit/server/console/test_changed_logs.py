"""A log that somebody has changed is shown, whatever stands in it: its pages must not be what hides the change."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from fumehood.audit.log import AuditLog
from fumehood.server.console.app import build_console
from fumehood.server.console.local_host import LocalConsole
from fumehood.server.console.local_source import LocalLogSource
from fumehood.server.console.routes import ROOT

pytestmark = pytest.mark.anyio
CONTENT = {"sha256": "a" * 64, "size": 3, "stored": "b" * 64}
FIELDS = {
    "run.requested": ("language", "command", "code", "arguments"),
    "run.finished": ("status", "exit_code", "duration_us", "cpu_us", "peak_memory_bytes", "stdout", "displays"),
    "egress.denied": ("attempt", "what", "reason", "rule", "count"),
    "request.denied": ("reason",),
    "artifacts.found": ("artifacts",),
    "task.started": ("name", "task", "model"),
    "task.ended": ("stop", "detail", "turns", "tokens", "tool_calls", "cost_microdollars"),
    "model.answered": ("text", "calls", "input_tokens", "output_tokens", "cost_microdollars", "model"),
    "tool.called": ("tool", "risk", "digest"),
    "tool.returned": ("tool", "status", "run"),
    "approval.asked": ("tool", "request", "digest"),
    "approval.reviewed": ("cost", "verdict"),
    "sandbox.opened": ("policy", "policy_name", "process"),
}
ODD: tuple[Any, ...] = (
    *(None, True, -1, 10**400, 1e308, "inf", "9" * 5000, "\u202e<b>", ["a", None], {"a": {"b": [1]}}, []),
    *({"sha256": 1, "size": "x", "stored": "y"}, {**CONTENT, "size": 10**400}, [CONTENT]),
)
PAGES = (
    *("/", "/runs/run_1", "/tasks", "/tasks/task_1", "/egress", "/usage", "/usage.csv?period=30d", "/audit"),
    *("/audit/records/1", "/audit/records/9", "/audit/records/20"),
)


def bodies(odd: Any) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Kind, time and what a record says: each field once as it should not be, and then what stands around it."""
    known = {"run": "run_1", "sandbox": "box_1", "task": "task_1", "call": "call_1"}
    for kind, fields in FIELDS.items():
        usual = {name: CONTENT if name in ("code", "stdout", "text", "task") else "x" for name in fields}
        data: list[Any] = [{**usual, name: odd} for name in fields]
        for each in (*data, odd):
            yield kind, "2026-11-18T19:09:50.861408Z", {"data": each, "ids": known, "who": "root"}
        yield kind, "2026-11-18T19:09:50.861408Z", {"data": usual, "ids": odd, "who": odd}
        yield kind, "9999-99-99", {"data": usual, "ids": {"task": odd, "call": odd}, "who": "root"}


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: repr(odd)[:24].encode("ascii", "backslashreplace").decode())
async def test_a_changed_record_takes_no_page_away(tmp_path: Path, odd: Any) -> None:
    log = AuditLog.at(tmp_path / "log")
    log.close()
    with closing(sqlite3.connect(log.path)) as database, database:
        database.execute("DELETE FROM records")
        records = list(enumerate(bodies(odd), 1))
        for seq, (kind, time, said) in records:
            body = json.dumps({**said, "kind": kind, "seq": seq, "time": time, "v": 1})
            values = (seq, b"x" * 32, time, kind, "run_1", "box_1", body)
            database.execute("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?)", values)
        database.execute("UPDATE head SET seq = ?", (len(records),))
    console = LocalConsole(LocalLogSource(tmp_path / "log"))
    app = Starlette(routes=[Mount(ROOT, build_console(console))])
    try:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app, raise_app_exceptions=False), base_url="https://127.0.0.1"
        ) as client:
            await client.get(console.new_link("https://127.0.0.1"))
            for path in PAGES:
                assert (await client.get(f"{ROOT}{path}")).status_code in (200, 404), path
            assert "This log was changed" in (await client.get(f"{ROOT}/audit")).text
    finally:
        console.close()
