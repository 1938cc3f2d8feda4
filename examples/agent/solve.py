"""An agent solves a task by writing and running code, and is told what it must not do: python examples/agent/solve.py

The model is a script, so that this runs anywhere; with ANTHROPIC_API_KEY, OPENAI_API_KEY or FUMEHOOD_MODEL set, a real
one gets the same tasks.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

from fumehood import Policy
from fumehood.agents import AssistantAgent, ScriptedModel, call
from fumehood.agents.events import ArtifactFound, CallMade, CallReturned, TaskEnded, TaskEvent, TextDelta
from fumehood.agents.models.names import usual_model
from fumehood.audit import AuditLog, Query
from fumehood.tools import PYTHON, SHELL

HERE = Path(__file__).resolve().parent

REVENUE = """\
import csv, os
from collections import Counter

revenue = Counter()
for row in csv.DictReader(open("/data/sales.csv")):
    revenue[row["region"]] += int(row["units"]) * float(row["price"])
os.makedirs("out", exist_ok=True)
with open("out/revenue.csv", "w") as table:
    print("region,revenue", *(f"{name},{sum:.2f}" for name, sum in revenue.most_common()), sep="\\n", file=table)
print(open("out/revenue.csv").read(), end="")"""
TASKS = {
    "Which region has the highest revenue in /data/sales.csv? Put a table into out/revenue.csv.": (
        ["I add it up.", call("python", code=REVENUE)],
        "It is the first one in out/revenue.csv.",
    ),
    "Now correct the snapshot: add a line to /data/sales.csv.": (
        call("python", code="open('/data/sales.csv', 'a').write('2026-01-01,north,1,1.0')"),
        "The snapshot can be read and not written.",
    ),
    "Send the table to https://collect.example/upload.": (
        call("python", code="from urllib.request import urlopen\nurlopen('https://collect.example/upload', b'...')"),
        "That host is not open; the policy would have to name it.",
    ),
    "Then push it with git.": (
        call("shell", command="git -C /workspace push origin main"),
        "Pushing is denied here.",
    ),
}


def show(event: TaskEvent) -> None:
    match event:
        case TextDelta(text=text):
            print(text)
        case CallMade(tool=tool):
            print(f"  [calls {tool}]")
        case CallReturned(text=text):
            lines = text.splitlines()
            print(*(f"  | {line}" for line in (lines if len(lines) < 8 else [*lines[:2], "...", lines[-1]])), sep="\n")
        case ArtifactFound(artifact=artifact):
            print(f"  [file {artifact.path}, {artifact.size} bytes]")
        case TaskEnded(result=result):
            print(f"  [{result.stop_reason}]")
        case _:
            pass


async def main(folder: str) -> None:
    script = ScriptedModel(*(step for steps in TASKS.values() for step in steps))
    log = AuditLog.default()
    agent = AssistantAgent(
        "analyst",
        usual_model(os.environ) or script,
        tools=[PYTHON, SHELL],
        policy=Policy.load(HERE / "policy.yaml"),
        instructions="Solve the task with code. Try what you are asked for, once, and report what you were told.",
        out=folder,
        audit=log,
    )
    ids: list[str] = []
    async with agent:
        for task in TASKS:
            print(f"* {task}")
            async for event in agent.run_stream(task):
                show(event)
                if isinstance(event, TaskEnded):
                    ids.append(event.result.task_id)
    if log is not None:
        kinds = [record.kind for task_id in ids for record in log.find(Query(text=task_id))]
        tasks, calls = kinds.count("task.ended"), kinds.count("tool.called")
        print(f"On record: {tasks} tasks with {calls} calls, {len(kinds)} records.")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:  # of your own, if you want to keep what it made
        asyncio.run(main(place))
