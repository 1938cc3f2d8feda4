"""A writer and an executor know each other by messages alone; a runtime decides what each may do: messages.py

The models are scripts; put the name of a real one, such as "openai:gpt-5", in the writer's place.
"""

from __future__ import annotations

import asyncio

from fumehood import Policy
from fumehood.agents import SEND_MESSAGE, AssistantAgent, ScriptedModel, TaskDone, TaskRequest, call, task_agent
from fumehood.agents.teams import code_executor
from fumehood.runtime import AgentId, Grants, LocalRuntime

CODE = """\
```python
print(sum(n * n for n in range(1, 101)))
```"""
SCRIPT = ScriptedModel(
    ["I have it computed.", call("send_message", to="executor", text=CODE)],
    ["Somebody should know of this.", call("send_message", to="press/office", text="338350!")],
    "The squares of 1 to 100 add up to 338350. The press I may not write to.",
)


async def prepare(runtime: LocalRuntime, policy: Policy) -> None:
    """The writer may write to the executor and run nothing; the executor may run Python and write to nobody."""
    quiet = Policy(name="quiet")

    def make_writer(id: AgentId) -> AssistantAgent:
        return AssistantAgent("writer", SCRIPT, tools=[SEND_MESSAGE], policy=quiet)

    writing = Grants(tools=["send_message"], policies=[quiet], agents=["executor/{key}"])
    running = Grants(tools=["python"], policies=[policy])
    await runtime.register("writer", task_agent(make_writer), grants=writing)
    await runtime.register("executor", task_agent(lambda id: code_executor(policy=policy)), grants=running)
    await runtime.register("press", task_agent(lambda id: AssistantAgent("press", ScriptedModel("Printed."))))


async def main() -> None:
    policy = Policy(name="numbers", resources={"timeout": "15s", "memory": "256M"})
    async with LocalRuntime() as runtime:
        await prepare(runtime, policy)
        done = await runtime.send(
            TaskRequest(text="What do the squares of 1 to 100 add up to?"), to="writer", reply=TaskDone
        )
    print(done.text)
    print(f"{done.stop}, {done.usage.turns} turns, {done.usage.tool_calls} calls")


if __name__ == "__main__":
    asyncio.run(main())
