"""A server with two real container engines: each tenant has its own, and one without an engine has no containers."""

from __future__ import annotations

import json
from pathlib import Path

import engine
import pytest
from live.second_engine import open_second_engine
from requirements import require
from unit.server.hosting import hosted

POLICY = "version: 1\nbackend: docker\n"


@pytest.mark.anyio
@pytest.mark.timeout(300)
async def test_a_tenant_s_containers_are_in_its_own_engine_and_in_no_other(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    require(engine.missing() is None, engine.missing() or "")
    with open_second_engine(tmp_path_factory.mktemp("second")) as second:  # the path of a socket may not be long
        engines = {"acme": engine.use(), "beta": second.local}
        async with hosted(tmp_path / "state", engines=engines, strict=False) as host:
            clients = {name: await host.tenant(name) for name in ("acme", "beta", "gamma")}
            for client in clients.values():
                assert (await client.put("/policies/boxed", json={"text": POLICY})).status_code == 200
            opened = await clients["acme"].post("/sandboxes", json={"policy": "boxed"})
            assert opened.status_code == 201, opened.text
            run = f"/sandboxes/{opened.json()['id']}/runs"
            assert (await clients["acme"].post(run, json={"code": "print(6 * 7)"})).json()["stdout"] == "42\n"
            listed = engine.docker(engine.folder(), "ps", "--no-trunc", "--format", "{{json .Labels}}").stdout
            assert any("tenant=acme" in json.loads(line) for line in listed.splitlines()), listed
            assert second.docker("ps", "--all", "--quiet").stdout == ""
            # The other engine has no image yet: what the first one has does not help.
            other = await clients["beta"].post("/sandboxes", json={"policy": "boxed"})
            assert (other.status_code, "image" in other.json()["detail"]) == (422, True), other.text
            none = await clients["gamma"].post("/sandboxes", json={"policy": "boxed"})
            assert "tenant gamma has no container engine" in none.json()["detail"]
