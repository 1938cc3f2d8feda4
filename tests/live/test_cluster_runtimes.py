"""Runtimes of tenants in a cluster: by credentials of `hood cluster credentials`, and each tenant by itself."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import cluster_nats
import pytest
from cluster_nats import NatsServer
from live.nats_process import Done, Job, Note, Place, register

from fumehood import UsageError
from fumehood.cluster.accounts import push_accounts
from fumehood.cluster.credentials import MemberCredentials
from fumehood.errors import DeliveryError
from fumehood.runtime.nats import NatsConnection, NatsRuntime

pytestmark = pytest.mark.anyio
_TEAM = Path(__file__).parents[2] / "examples" / "processes" / "team.py"
_HERE = _TEAM.parents[1] / "cluster" / "here.py"
_SECONDS = 60
Issue = Callable[..., Path]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def nats() -> Iterator[NatsServer]:
    with cluster_nats.running() as running:
        yield running


@pytest.fixture
def issue(nats: NatsServer, tmp_path: Path) -> Issue:
    """`hood cluster credentials`, as one types it."""

    def run(tenant: str, process: str, *options: str) -> Path:
        path = tmp_path / f"{tenant}-{process}.creds"
        place = ["--folder", str(nats.folder), "--output", str(path)]
        command = [sys.executable, "-m", "fumehood", "cluster", "credentials", tenant, process, *options, *place]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
        assert done.returncode == 0, done.stderr
        return path

    return run


def opened(credentials: Path) -> NatsRuntime:
    runtime = NatsRuntime(credentials=credentials, audit=False)
    for each in (Job, Done, Note):
        runtime.messages.add(each)
    return runtime


async def test_the_team_with_credentials_of_a_cluster(issue: Issue) -> None:
    roles = {"writer": ["--agent", "writer"], "editor": ["--agent", "editor"], "ask": ["--application"]}
    files = {role: issue("acme", role, *options, "--grants") for role, options in roles.items()}

    def start(role: str) -> subprocess.Popen[str]:
        return subprocess.Popen([sys.executable, str(_TEAM), role, str(files[role])], stdout=subprocess.PIPE, text=True)

    members = [start(role) for role in ("writer", "editor")]
    try:
        for member in members:
            assert member.stdout is not None
            assert member.stdout.readline() == "ready\n"
        asking = start("ask")
        assert asking.communicate(timeout=_SECONDS)[0] == "Fume hoods: a text\n"
    finally:
        for member in members:
            member.kill()
            member.communicate()


def test_the_cluster_of_three_local_processes() -> None:
    done = subprocess.run([sys.executable, str(_HERE)], capture_output=True, text=True, timeout=2 * _SECONDS)
    assert (done.stdout, done.returncode) == ("42\n", 0), done.stderr


async def test_tenants_do_not_see_each_other(issue: Issue, nats: NatsServer, tmp_path: Path) -> None:
    """With processes, types and topics of the same names."""
    home = ["--agent", "worker", "--grants"]
    files = {
        tenant: (issue(tenant, "home", *home), issue(tenant, "boss", "--application")) for tenant in ("one", "two")
    }
    places = {tenant: Place("", "default", 15, str(tmp_path / tenant)) for tenant in files}
    for place in places.values():
        Path(place.folder).mkdir()
    (home_of_one, boss_of_one), (home_of_two, boss_of_two) = files.values()
    async with opened(home_of_one) as one, opened(boss_of_two) as stranger:
        await register(one, places["one"])
        with pytest.raises(DeliveryError, match="no agent type"):
            await stranger.send(Job(number=1), to="worker")
        await stranger.publish(Note(number=1), topic="notes")
        async with opened(home_of_two) as two, opened(boss_of_one) as boss:
            await register(two, places["two"])
            await boss.publish(Note(number=2), topic="notes")
            assert (await boss.send(Job(number=3), to="worker", reply=Done)).handled == 1
            await stranger.publish(Note(number=4), topic="notes")
            await one.idle()
            await two.idle()
    lines = {tenant: place.lines("notes") + place.lines() for tenant, place in places.items()}
    assert lines == {"one": ["2 home", "3 home"], "two": ["4 home"]}


async def test_a_process_that_was_removed_is_cut_off(issue: Issue, nats: NatsServer) -> None:
    path = issue("acme", "former", "--application")
    async with opened(path):
        pass
    await push_accounts(nats.authority, nats.authority.revoke("acme/former"))
    with pytest.raises(DeliveryError, match="cannot be used"):
        async with opened(path):
            pass


async def test_credentials_are_of_one_process_at_the_cluster_s_addresses(issue: Issue, nats: NatsServer) -> None:
    path = issue("acme", "one-name", "--application")
    with pytest.raises(UsageError, match="those of the process 'one-name', not of 'another'"):
        NatsRuntime(credentials=path, process="another")
    with pytest.raises(UsageError, match="has its own credentials"):
        NatsRuntime(NatsConnection(), credentials=path)
    async with NatsRuntime(f"tls://127.0.0.1:{nats.port}", credentials=path, audit=False) as runtime:
        assert runtime.process == MemberCredentials.read(path).name == "one-name"
    with pytest.raises(UsageError, match="not for the space 'elsewhere'"):
        async with NatsRuntime(credentials=path, space="elsewhere", audit=False):
            pass
