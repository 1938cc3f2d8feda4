"""`hood mcp` with containers behind it: the same tools, clients apart, and nothing left."""

from __future__ import annotations

import os
from pathlib import Path

import engine
import pytest
from live.mcp_host import call, connected, links, listening, text
from live.test_mcp import use_every_tool
from live.traces import descendants, wait_until
from requirements import require

from fumehood.backends.docker.labels import OWNER
from fumehood.host.processes import identity

pytestmark = pytest.mark.anyio
POLICY = """
version: 1
backend: docker
image: {}
filesystem: {{outputs: ["out/**"]}}
commands: {{allow: [ls, seq, "cat *"]}}
"""


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    require(os.geteuid() == 0, "the engine of the tests is root's")
    require(engine.missing() is None, engine.missing() or "")
    (tmp_path / "served.yaml").write_text(POLICY.format(engine.IMAGE))
    return tmp_path / "served.yaml"


def own_servers() -> set[str]:
    return {identity(process) for process in descendants(os.getpid())}


def containers_of(owners: set[str]) -> set[str]:
    """Of these alone: tests in other processes have theirs on the same engine."""
    listed = engine.docker(engine.folder(), "ps", "--format", f'{{{{.ID}}}} {{{{.Label "{OWNER}"}}}}').stdout
    return {name for name, _, owner in (line.partition(" ") for line in listed.splitlines()) if owner in owners}


async def test_a_client_uses_every_tool_in_a_container(policy: Path) -> None:
    async with connected("--policy", policy, is_quick=False) as client:
        servers = own_servers()
        assert len(await use_every_tool(client)) == len((await client.list_tools()).tools)
        made = await call(client, "python", code="import os; os.mkdir('out'); open('out/x', 'w').write('1')")
        assert [item.uri for item in (await client.list_resources()).resources] == links(made)
        assert containers_of(servers)
    wait_until(lambda: not containers_of(servers), 30.0, "the client's container is gone")


async def test_a_container_that_is_killed_costs_one_call_and_what_was_in_it(policy: Path) -> None:
    async with connected("--policy", policy, is_quick=False) as client:
        await call(client, "write_file", path="x", content="1")
        for container in containers_of(own_servers()):
            engine.docker(engine.folder(), "kill", container)
        lost = await call(client, "list_files")
        assert lost.is_error
        assert "gets a new one, without files and sessions" in lost.structured_content["text"]
        assert await text(client, "list_files") == "The folder is empty."


async def test_clients_at_once_have_containers_of_their_own(policy: Path) -> None:
    with listening("--policy", policy) as server:
        async with server.connected() as one, server.connected() as other:
            await call(one, "write_file", path="mine", content="one")
            assert await text(other, "list_files") == "The folder is empty."
            assert "No such file" in await text(other, "read_file", path="mine")
