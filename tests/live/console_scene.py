"""A server with a tenant whose log has a bit of everything: runs, denials, approvals, tasks."""

from __future__ import annotations

import asyncio
import runpy
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from hood_server import RunningServer, running_server

from fumehood import Policy
from fumehood.agents import AssistantAgent, ScriptedModel, call
from fumehood.agents.models import ModelAnswer
from fumehood.audit.store import Query
from fumehood.server.identity.principals import OF_TENANTS, Scope
from fumehood.tools import PYTHON, SHELL

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
POLICY = """\
version: 1
name: analysis
network: {allow: [{host: api.example, ports: [443]}]}
filesystem: {outputs: ['out/**']}
audit: {code: full, output: full}
"""
HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>\x1b[31mred\x1b[0m \u202egnp.exe\u202c " + "x" * 3000
CODE = """\
import urllib.request
from pathlib import Path

Path("out").mkdir(exist_ok=True)
Path("out/totals.csv").write_text("region,total\\nnorth,42\\n")  # what leaves
try:
    urllib.request.urlopen("https://collect.example/upload", timeout=5)
except OSError as error:
    print("cannot send:", error)
"""


PLOT = """\
import struct, zlib
from pathlib import Path

totals = {"north": 42, "south": 17, "west": 30}

def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

def bars(values, width=60, height=120):
    green, white = bytes([11, 110, 105]), bytes([255] * 3)
    rows = b""
    for y in range(height, 0, -1):
        colours = [green if y <= 2 * value else white for value in values]
        rows += bytes(1) + b"".join(colour * (width - 8) + white * 8 for colour in colours)
    head = struct.pack(">IIBBBBB", width * len(values), height, 8, 2, 0, 0, 0)
    start = bytes([137]) + b"PNG" + bytes([13, 10, 26, 10])
    return start + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")

class Plot:
    def _repr_png_(self):
        return bars(totals.values())

Path("out").mkdir(exist_ok=True)
Path("out/totals.png").write_bytes(bars(totals.values()))
Plot()
"""
"""A session that displays a figure, and leaves one as a file."""


def priced(step: Sequence[Any] | str, written: int, cost: float | None) -> ModelAnswer:
    """What a model says and calls, with what it has read and written, and what that costs."""
    parts = [step] if isinstance(step, str) else list(step)
    text = "".join(part for part in parts if isinstance(part, str))
    calls = tuple(part.model_copy(update={"call_id": "c1"}) for part in parts if not isinstance(part, str))
    return ModelAnswer(text, calls=calls, input_tokens=1840, output_tokens=written, cost=cost)


CONNECTIONS = """\
import socket

for host in ("registry.example", "10.20.0.7"):
    try:
        socket.create_connection((host, 443), 5)
    except OSError as error:
        print(host, error)
"""


class Scene:
    def __init__(self, server: RunningServer, person: str, operator: str) -> None:
        self.url, self.agent, self.person, self.server = server.url, server.key, person, server
        self.operator = operator
        headers = {"Authorization": f"Bearer {server.key}"}
        self.api = httpx.Client(base_url=f"{server.url}/v1", headers=headers, timeout=60)

    def run(self, code: str, policy: str = "analysis") -> dict[str, Any]:
        sandbox = self.api.post("/sandboxes", json={"policy": policy}).json()["id"]
        answer = self.api.post(f"/sandboxes/{sandbox}/runs", json={"code": code})
        assert answer.status_code == 200, answer.text
        self.api.delete(f"/sandboxes/{sandbox}")
        return answer.json()

    def ask(self, code: str, tool: str = "python") -> dict[str, Any]:
        asked = {"tool": tool, "arguments": {"code": code}, "policy": "analysis", "code": "code", "language": "python"}
        answer = self.api.post("/approvals", json=asked)
        assert answer.status_code == 201, answer.text
        return answer.json()

    def fill(self) -> None:
        self.run(CODE)
        self.run("import sys\nfor n in range(5):\n    print('row', n)\nsys.exit(3)\n")
        self.run("print(sum(range(10 ** 6)))\n")
        self.run_agent(example_tasks())
        self.draw()
        self.ask("import shutil\n\nshutil.rmtree('/workspace/old')  # last year's\n")
        self.ask("print('hello')")

    def draw(self) -> None:
        """A task whose model has a price, and that ends with figures."""
        steps = (
            priced(("I draw the totals of each region.", call("python", code=PLOT)), 412, 0.0061),
            priced("The north sold most: 42 of 89. The picture is in out/totals.png.", 38, 0.0027),
        )
        self.run_agent({"Draw what each region sold.": steps}, session=True, name="openai:gpt-5-mini")

    def run_agent(self, tasks: Mapping[str, Sequence[Any]], *, session: bool = False, name: str = "scripted") -> None:
        """Tasks of an agent whose records are in the tenant's log, with what its script answers to each."""
        policy = Policy.load(EXAMPLES / "agent" / "policy.yaml").override({"audit": {"code": "full", "output": "full"}})
        script = ScriptedModel(*(step for steps in tasks.values() for step in steps), name=name)

        async def work() -> None:
            async with AssistantAgent(
                "analyst", script, tools=[PYTHON, SHELL], policy=policy, audit=self.server.log, session=session
            ) as agent:
                for task in tasks:
                    await agent.run(task)

        with ThreadPoolExecutor(1) as thread:  # Playwright has an event loop in this one
            thread.submit(lambda: asyncio.run(work())).result()

    def furnish(self) -> None:
        """What those who manage see: versions and tests of a policy, keys, another tenant, an open sandbox."""
        tests = "tests:\n  - {connect: 'api.example:443', expect: allow}\n"
        tests += "  - {connect: '169.254.169.254:80', expect: deny}\n"
        for text in (POLICY + tests, f"{POLICY}resources: {{timeout: 20s, memory: 256M}}\n{tests}"):
            assert self.api.put("/policies/analysis", json={"text": text}).status_code == 200
        private = "version: 1\nname: intranet\nnetwork: {allow: [{host: 10.20.0.7, ports: [5432], private: true}]}\n"
        assert self.api.put("/policies/intranet", json={"text": private}).status_code == 200
        long = "nightly-report-generator-of-the-finance-department-with-a-rather-long-name"
        for name, days in (("laptop of ada", 30), (long, None)):
            made = self.api.post("/keys", json={"name": name, "scopes": ["run", "audit"], "days": days})
            assert made.status_code == 201, made.text
        self.api.delete(f"/keys/{made.json()['id']}")
        self.run(CONNECTIONS)
        quotas = {
            "sandboxes": "20",
            "workspace_bytes": "16G",
            "cpu_seconds_per_day": "3600",
            "disk": "50G",
            "memory": "8G",
        }
        operator = {"Authorization": f"Bearer {self.operator}"}
        for quota, value in quotas.items():
            put = self.api.put(f"/tenants/acme/quotas/{quota}", json={"value": value}, headers=operator)
            assert put.status_code == 200, put.text
        assert self.api.post("/tenants", json={"name": "globex"}, headers=operator).status_code == 201
        metadata = {"team": "finance", "purpose": "quarterly report"}
        self.api.post("/sandboxes", json={"policy": "analysis", "metadata": metadata})

    def newest(self, kind: str) -> Any:
        found = self.server.log.find(Query(kind=kind, newest_first=True, limit=1))
        return next(iter(found))

    def pages(self) -> dict[str, str]:
        """A name and the path of each page that there is something to see on."""
        denied = self.newest("egress.denied")
        pages = {"now": "/", "run": f"/runs/{denied.run_id}", "tasks": "/tasks", "approvals": "/approvals"}
        waiting = self.newest("approval.asked").data["request"]
        pages |= {"approval": f"/approvals/{waiting}", "audit": "/audit", "record": f"/audit/records/{denied.seq}"}
        started = list(self.server.log.find(Query(kind="task.started")))
        for name, record in zip(("task", "figures"), (started[0], started[-1]) if started else (), strict=False):
            pages[name] = f"/tasks/{record.parse()['ids']['task']}"
        return pages

    def managing(self) -> dict[str, str]:
        """Pages of those who manage."""
        change = "/policies/analysis/change?attempt=connect%20collect.example:443"
        pages = {"egress": "/egress", "policies": "/policies", "policy": "/policies/analysis", "change": change}
        return pages | {"usage": "/usage", "keys": "/keys", "tenants": "/tenants", "tenant": "/tenants/acme"}


def example_tasks() -> dict[str, Any]:
    """Those of examples/agent/solve.py."""
    return runpy.run_path(str(EXAMPLES / "agent" / "solve.py"))["TASKS"]


@contextmanager
def open_scene(**settings: object) -> Iterator[Scene]:
    with running_server(strict=False, **settings) as server:
        person, operator = server.make_key(OF_TENANTS), server.make_key([*OF_TENANTS, Scope.OPERATE])
        scene = Scene(server, person, operator)
        assert scene.api.put("/policies/analysis", json={"text": POLICY}).status_code == 200
        try:
            yield scene
        finally:
            scene.api.close()
