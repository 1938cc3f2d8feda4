"""An AutoGen agent whose code runs in a sandbox: python examples/autogen/agent.py

The model is a script that AutoGen replays, so that this runs anywhere; put a real model client in its place.
"""

from __future__ import annotations

import asyncio

from autogen_agentchat.agents import ApprovalRequest, ApprovalResponse, CodeExecutorAgent
from autogen_agentchat.base import TaskResult
from autogen_agentchat.messages import CodeExecutionEvent
from autogen_ext.models.replay import ReplayChatCompletionClient

from fumehood.integrations.autogen import SandboxCodeExecutor

ANSWERS = [
    """I compute the squares, and look around.
```python
print([n * n for n in range(1, 6)])
```
```sh
cat /etc/shadow
```""",
    "The squares are 1, 4, 9, 16 and 25. The host's passwords are not here.",
]


def approve(request: ApprovalRequest) -> ApprovalResponse:
    return ApprovalResponse(approved=True, reason="it runs in a sandbox")


async def main() -> None:
    model = ReplayChatCompletionClient(ANSWERS)
    async with SandboxCodeExecutor(timeout=15, mem_limit="256m", network_disabled=True, read_only=True) as executor:
        agent = CodeExecutorAgent("coder", executor, model_client=model, approval_func=approve)
        async for message in agent.run_stream(task="What are the squares of 1 to 5?"):
            if isinstance(message, CodeExecutionEvent):
                print(f"exit code {message.result.exit_code}\n{message.result.output}", end="")
            elif isinstance(message, TaskResult):
                print(message.messages[-1].to_text())


if __name__ == "__main__":
    asyncio.run(main())
