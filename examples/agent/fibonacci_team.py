"""A writer and an executor compute numbers, and a critic decides whether that is enough: fibonacci_team.py

The models are scripts; put the name of a real one, such as "openai:gpt-5", in their place.
"""

from __future__ import annotations

import asyncio

from fumehood import Policy
from fumehood.agents import AssistantAgent, ScriptedModel
from fumehood.agents.teams import CodingPair, MaxMessages, RoundRobinTeam, TextMention

CODE = """\
I write it down and run it.
```python
a, b = 0, 1
for _ in range(10):
    print(a, end=" ")
    a, b = b, a + b
```"""
WRITER = ScriptedModel(CODE, "The first ten Fibonacci numbers are 0, 1, 1, 2, 3, 5, 8, 13, 21 and 34.")
CRITIC = ScriptedModel("These are ten, and they are right. APPROVED")


def make_team(policy: Policy) -> RoundRobinTeam:
    pair = CodingPair(WRITER, policy=policy, name="coders")
    critic = AssistantAgent("critic", CRITIC, instructions="Check the numbers; say APPROVED when they are right.")
    return RoundRobinTeam([pair, critic], termination=TextMention("APPROVED", by=["critic"]) | MaxMessages(6))


async def main() -> None:
    policy = Policy(resources={"timeout": "15s", "memory": "512M", "cpus": 0.5})
    result = await make_team(policy).run("Write Python code for the first 10 Fibonacci numbers, and run it.")
    for message in result.messages:
        if message.kind == "assistant" and message.text:  # what each was told by the others is in there too
            print(f"{message.source}: {message.text}")
    print("Stop reason:", result.stop_reason)


if __name__ == "__main__":
    asyncio.run(main())
