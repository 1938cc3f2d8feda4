"""Files of the client's machine that its policy mounts: sent along, read there, and gone with the sandbox."""

# pyright: reportPrivateUsage=false
from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from unit.server.hosting import Hosted, hosted

from fumehood import FumehoodError, Policy, UsageError
from fumehood.guest.contract import frames
from fumehood.remote.policies import pack_policy
from fumehood.remote.sandbox import RemoteSandbox
from fumehood.remote.server import connect
from fumehood.server.identity.keys import create_key
from fumehood.server.identity.principals import OF_TENANTS, Scope
from fumehood.server.lifetime import look_after
from fumehood.server.sandboxes import sent_mounts
from fumehood.server.tenants.tenants import create_tenant

pytestmark = pytest.mark.anyio
END = frames.encode({"end": True})


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Hosted]:
    async with hosted(tmp_path / "state", strict=False, limits={"mounts_of_tenant": "1M"}) as running:
        for tenant in ("acme", "umbrella"):
            await create_tenant(running.server.database, tenant, "test")
        yield running


async def key_of(host: Hosted, tenant: str = "acme", *left_out: Scope) -> str:
    scopes = [scope for scope in OF_TENANTS if scope not in left_out]
    return (await create_key(host.server.database, tenant, "test", scopes))[0]


def policy_of(source: Path, mode: str = "ro") -> Policy:
    return Policy(filesystem={"mounts": [{"source": str(source), "target": "/data", "mode": mode}]})


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    (folder / "below").mkdir(parents=True)
    (folder / "below" / "a").write_text("hello")
    (folder / "run").write_text("#!/bin/sh\necho ran\n")
    (folder / "run").chmod(0o755)
    (folder / "link").symlink_to("below/a")
    (folder / "out").symlink_to("/etc/hostname")
    return folder


def sent(host: Hosted) -> list[Path]:
    return sorted((host.server.settings.folder / "mounts").glob("*/*/*"))


async def test_a_read_only_mount_of_the_clients_is_there_as_it_was(host: Hosted, source: Path) -> None:
    server, program = connect(host.address, await key_of(host)), "import os; print(sorted(os.listdir('/data')))"
    async with server.sandbox(policy_of(source)) as box:
        assert box.policy.digest == policy_of(source).digest
        (source / "later").write_text("not seen")
        assert (await box.run(program)).stdout == "['below', 'link', 'run']\n"
        assert (await box.run(argv=["sh", "-c", "cat /data/link; /data/run"])).stdout == "helloran\n"
        for change in ("open('/data/below/a', 'w')", "open('/data/new', 'w')", "import os; os.remove('/data/run')"):
            assert "Read-only file system" in (await box.run(change)).stderr
        assert str(host.server.settings.folder) not in repr(box.policy)
        assert len(sent(host)) == 1
        with pytest.raises(UsageError, match="cannot be forked"):
            await box.fork()
    assert sent(host) == []
    async with server.sandbox(policy_of(source / "below" / "a")) as box:
        assert (await box.run("print(open('/data').read())")).stdout == "hello\n"


async def test_what_a_copy_cannot_be_is_refused_by_name(host: Hosted, source: Path, tmp_path: Path) -> None:
    server = connect(host.address, await key_of(host))
    with pytest.raises(UsageError, match=r"filesystem.mounts\[/data\].*mode: ro"):
        server.sandbox(policy_of(source, "rw"))
    large = tmp_path / "large"
    large.write_bytes(b"")
    os.truncate(large, 17 * 1024 * 1024)
    for path, why in ((large, "more than the 15M"), (tmp_path / "none", "cannot be read")):
        with pytest.raises(UsageError, match=why):
            async with server.sandbox(policy_of(path)):
                pass
    os.truncate(large, 2 * 1024 * 1024)
    with pytest.raises(FumehoodError, match="1M for all sandboxes of the tenant"):
        async with server.sandbox(policy_of(large)):
            pass
    assert sent(host) == []


@pytest.mark.parametrize(
    "entries",
    [
        [({"path": "", "kind": "folder"}, b""), ({"path": "../x", "kind": "file"}, b"x")],
        [({"path": "", "kind": "folder"}, b""), ({"path": "/tmp/x", "kind": "file"}, b"x")],
        [({"path": "", "kind": "folder"}, b""), ({"path": "l", "kind": "link", "target": "/etc"}, b"")],
        [({"path": "", "kind": "folder"}, b""), ({"path": "l", "kind": "link", "target": "../../x"}, b"")],
        [
            ({"path": "", "kind": "folder"}, b""),
            ({"path": "l", "kind": "link", "target": "m"}, b""),
            ({"path": "l/x", "kind": "file"}, b"x"),
        ],
        [({"path": "", "kind": "file"}, b"1"), ({"path": "", "kind": "file"}, b"2")],
        [({"path": "", "kind": "device"}, b"")],
        [({"kind": "file"}, b"")],
        [],
    ],
    ids=[
        "above",
        "absolute",
        "link to the host",
        "link above",
        "through a link",
        "twice",
        "device",
        "no path",
        "empty",
    ],
)
async def test_a_pack_that_lies_makes_nothing(host: Hosted, entries: list[tuple[frames.Header, bytes]]) -> None:
    client = host.client(await key_of(host))
    packed = b"".join(frames.encode(*entry) for entry in entries)
    for body in (packed + END, packed):
        answer = await client.post("/mounts", content=body)
        assert (answer.status_code, str(host.server.settings.folder) in answer.text) == (422, False)
    assert sent(host) == []


async def test_only_the_one_who_sent_it_mounts_it_and_once(
    host: Hosted, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {
        name: await key_of(host, tenant)
        for name, tenant in (("own", "acme"), ("other", "acme"), ("foreign", "umbrella"))
    }
    packed = frames.encode({"path": "", "kind": "file"}, b"hello") + END

    async def send() -> str:
        return (await host.client(keys["own"]).post("/mounts", content=packed)).json()["id"]

    def opened(key: str, name: str, policy: Policy) -> RemoteSandbox:
        return connect(host.address, key)._sandbox({"policy": pack_policy(policy), "mounts": {"/data": name}}, {})

    name = await send()
    for key in ("other", "foreign"):
        with pytest.raises(UsageError, match="were not sent"):
            await opened(keys[key], name, policy_of(source)).__aenter__()
    writable, elsewhere = (
        policy_of(source, "rw"),
        Policy(filesystem={"mounts": [{"source": "/etc", "target": "/other"}]}),
    )
    for policy in (writable, elsewhere):
        with pytest.raises(FumehoodError):
            await opened(keys["own"], name, policy).__aenter__()
    async with opened(keys["own"], name, policy_of(source)) as box:
        assert (await box.run("print(open('/data').read())")).stdout == "hello\n"
        with pytest.raises(UsageError, match="were not sent"):
            await opened(keys["own"], name, policy_of(source)).__aenter__()
    for scope in (Scope.FILES, Scope.POLICIES):
        with pytest.raises(FumehoodError, match=f"the scope '{scope.value}'"):
            await connect(host.address, await key_of(host, "acme", scope)).sandbox(policy_of(source)).__aenter__()
    monkeypatch.setattr(sent_mounts, "_UNUSED_SECONDS", 0.0)
    await send()
    await look_after(host.server)
    assert sent(host) == []
