"""A port that a model publishes: reached by the user, where the policy lists it."""

from __future__ import annotations

import re
import urllib.request

import anyio.to_thread
import pytest

from fumehood import AsyncSandbox, Policy
from fumehood.tools import Toolbox, ToolStatus, port_tools, process_tools

pytestmark = pytest.mark.anyio
SERVER = "echo hello > index.html; python3 -m http.server 8000 --bind 127.0.0.1"


async def test_a_model_publishes_the_port_of_its_server_and_the_user_reaches_it() -> None:
    policy = Policy(network={"publish": [8000]}, resources={"timeout": "2m"})
    async with AsyncSandbox(policy) as box:
        toolbox = Toolbox(box, *process_tools(), *port_tools(policy))
        early = await toolbox.call("expose_port", {"port": 8000, "wait": 0.1})
        assert early.status is ToolStatus.ERROR
        assert early.text.startswith("No program listens on port 8000")
        await toolbox.call("start_process", {"command": SERVER, "wait": 0})
        result = await toolbox.call("expose_port", {"port": 8000, "wait": 60})
        assert result.status is ToolStatus.SUCCESS
        found = re.search(r"http://([^/:]+):(\d+)/\?fumehood-token=(\S+)", result.text)
        assert found is not None
        host, port, token = found.groups()
        request = urllib.request.Request(f"http://127.0.0.1:{port}/", headers={"X-Fumehood-Token": token})
        answer = await anyio.to_thread.run_sync(lambda: urllib.request.urlopen(request).read())
        assert answer == b"hello\n"
        assert host.endswith(".localhost")
        assert (await toolbox.call("expose_port", {"port": 8000})).text == result.text
        refused = await toolbox.call("expose_port", {"port": 8001})
        assert refused.status is ToolStatus.DENIED
        assert "add 8001 to network.publish" in refused.text


def test_where_no_port_may_be_published_there_is_no_tool_for_it() -> None:
    assert port_tools(Policy()) == ()
