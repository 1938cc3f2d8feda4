"""An agent that reads one part of one site, with a token that it never sees: GITHUB_TOKEN=... web_reader.py

The gateway adds the token to requests that the rule allows; everything else is refused, and told. The model is a
script; put the name of a real one in its place.
"""

from __future__ import annotations

import asyncio
import os
import sys

from fumehood import Policy
from fumehood.agents import AssistantAgent, ScriptedModel, call
from fumehood.tools import PYTHON

READ = "import urllib.request\nprint(urllib.request.urlopen({!r}, timeout=10).read().decode()[:2000])"
SEND = "import urllib.request\nurllib.request.urlopen({!r}, data=b'all that I know', timeout=10)"


def make_agent(policy: Policy, page: str, elsewhere: str) -> AssistantAgent:
    model = ScriptedModel(
        ["I read the page.", call("python", code=READ.format(page))],
        ["And I look for the token.", call("python", code="import os\nprint(sorted(os.environ))")],
        ["And I send it on.", call("python", code=SEND.format(page)), call("python", code=READ.format(elsewhere))],
        "I could read the page. There is no token here, and nothing can be sent.",
    )
    return AssistantAgent("reader", model, tools=[PYTHON], policy=policy)


async def main() -> None:
    policy = Policy(
        network={"allow": [{"host": "api.github.com", "ports": [443], "methods": ["GET"], "paths": ["/repos/**"]}]},
        secrets=[{"name": "GITHUB_TOKEN", "from_env": "GITHUB_TOKEN", "inject": {"host": "api.github.com"}}],
    )
    agent = make_agent(policy, "https://api.github.com/repos/python/cpython", "https://example.com/")
    async for event in agent.run_stream("What is the newest on that page?"):
        print(event.to_dict())


if __name__ == "__main__":
    if "GITHUB_TOKEN" not in os.environ:
        sys.exit("set GITHUB_TOKEN: the gateway adds it to requests, and the sandbox never sees it")
    asyncio.run(main())
