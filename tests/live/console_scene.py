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
from fumehood.agents import AssistantAgent, ScriptedModel
from fumehood.audit.store import Query
from fumehood.server.identity.principals import OF_TENANTS
from fumehood.tools import PYTHON, SHELL

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
POLICY = """
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


class Scene:
    def __init__(self, server: RunningServer, person: str) -> None:
        self.url, self.agent, self.person, self.server = server.url, server.key, person, server
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
        self.ask("import shutil\n\nshutil.rmtree('/workspace/old')  # last year's\n")
        self.ask("print('hello')")

    def run_agent(self, tasks: Mapping[str, Sequence[Any]]) -> None:
        """Tasks of an agent whose records are in the tenant's log, with what its script answers to each."""
        policy = Policy.load(EXAMPLES / "agent" / "policy.yaml").override({"audit": {"code": "full", "output": "full"}})
        script = ScriptedModel(*(step for steps in tasks.values() for step in steps))

        async def work() -> None:
            async with AssistantAgent(
                "analyst", script, tools=[PYTHON, SHELL], policy=policy, audit=self.server.log
            ) as agent:
                for task in tasks:
                    await agent.run(task)

        with ThreadPoolExecutor(1) as thread:  # Playwright has an event loop in this one
            thread.submit(lambda: asyncio.run(work())).result()

    def newest(self, kind: str) -> Any:
        found = self.server.log.find(Query(kind=kind, newest_first=True, limit=1))
        return next(iter(found))

    def pages(self) -> dict[str, str]:
        """A name and the path of each page that there is something to see on."""
        denied = self.newest("egress.denied")
        pages = {"now": "/", "run": f"/runs/{denied.run_id}", "tasks": "/tasks", "approvals": "/approvals"}
        waiting = self.newest("approval.asked").data["request"]
        pages |= {"approval": f"/approvals/{waiting}", "audit": "/audit", "record": f"/audit/records/{denied.seq}"}
        started = next(iter(self.server.log.find(Query(kind="task.started", limit=1))), None)
        if started is not None:
            pages["task"] = f"/tasks/{started.parse()['ids']['task']}"
        return pages


def example_tasks() -> dict[str, Any]:
    """Those of examples/agent/solve.py."""
    return runpy.run_path(str(EXAMPLES / "agent" / "solve.py"))["TASKS"]


@contextmanager
def open_scene(**settings: object) -> Iterator[Scene]:
    with running_server(strict=False, **settings) as server:
        person = server.make_key(OF_TENANTS)
        scene = Scene(server, person)
        assert scene.api.put("/policies/analysis", json={"text": POLICY}).status_code == 200
        try:
            yield scene
        finally:
            scene.api.close()
