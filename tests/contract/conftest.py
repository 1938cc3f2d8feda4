"""Fixtures of the contract: every test runs once for each backend, through the public API alone.

A backend joins by being added to BACKENDS; no test may ask which one it runs on.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, cast

import differences
import engine
import machines
import pytest
import sampling
from containers import EMPTY, LendSandbox, OpenContainers, lent, open_containers, without_spares
from contract.recorded import Recorded
from requirements import require

from fumehood import AsyncSandbox, FumehoodError, Policy, Sandbox
from fumehood.audit import AuditLog, Query
from fumehood.remote.server import connect

if TYPE_CHECKING:
    from hood_cluster import WorkerProcess
    from hood_server import RunningServer


# An engine of the tests' own needs root; an ordinary user tests what an ordinary user has.
# `make test-all` has a server with PostgreSQL, too: to a sandbox it makes no difference what its tenants are kept in.
ELSEWHERE = [
    *("remote", "cluster"),
    *(["remote-postgresql"] if sampling.is_whole() and os.geteuid() == 0 else ()),
]
BACKENDS = ["native", *((*engine.BACKENDS, machines.BACKEND) if os.geteuid() == 0 else ()), *ELSEWHERE]


_SERVERS = {"remote": "sqlite_server", "remote-postgresql": "postgresql_server", "cluster": "cluster_server"}
# What these are about is not the client's: mounts of its files, its audit log, its package index, its own network.
NOT_REMOTE = (
    "test_audit.py",
    "test_egress_records.py",
    "test_installation.py",
    "test_mounts.py",
    "test_surroundings.py",
)
ON_CLUSTER = (
    *("test_background.py", "test_files.py", "test_ports.py", "test_sandbox.py"),
    *("test_sessions.py", "test_snapshots.py", "test_stdin.py"),
)
# Its names and upstreams are known to the gateway of the test process; a worker is another one.
NOT_ON_CLUSTER = ("test_network.py",)
# A machine shares no folder with the host, which tests/live/test_microvm.py shows.
NOT_ON_MACHINES = ("test_mounts.py",)
ABOUT_INTERPRETERS = ("test_languages.py", "test_libraries.py", "test_plain_python.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reasons = (_takes_too_long, _lacks_language, _is_of_client, _is_shown_by_remote, _is_of_mounts)
    items[:] = [item for item in items if not any(reason(item) for reason in reasons)]
    differences.mark(items)


def _takes_too_long(item: pytest.Item) -> bool:
    """These are about interpreters and compilers, not about the backend, and gVisor, or a processor of
    software, takes many minutes for them. At a server they are those of native sandboxes."""
    elsewhere = () if sampling.is_whole() else differences.ELSEWHERE
    slow = ("gvisor", machines.BACKEND, *elsewhere)
    return item.path.name in ABOUT_INTERPRETERS and differences.backend_of(item) in slow


def _is_of_mounts(item: pytest.Item) -> bool:
    return item.path.name in NOT_ON_MACHINES and differences.backend_of(item) == machines.BACKEND


def _is_of_client(item: pytest.Item) -> bool:
    return item.path.name in NOT_REMOTE and differences.backend_of(item) in differences.ELSEWHERE


def _is_shown_by_remote(item: pytest.Item) -> bool:
    """Behind a server a worker speaks the same protocol once more: some of the tests show that."""
    if differences.backend_of(item) != "cluster":
        return False
    return item.path.name in NOT_ON_CLUSTER or not (item.path.name in ON_CLUSTER or sampling.is_whole())


def _lacks_language(item: pytest.Item) -> bool:
    """The image of the tests has some; that a policy finds the others in an image that has them is the same code."""
    wanted = {mark.args[0] for mark in item.iter_markers("language")} | {differences.parameter_of(item, "language")}
    backend, has = differences.backend_of(item), {"", "python", "sh", "bash"}
    if backend == machines.BACKEND:
        return not wanted <= has
    return backend in engine.BACKENDS and not wanted <= {*has, *engine.LANGUAGES}


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param in engine.BACKENDS:
        require(engine.missing() is None, engine.missing() or "")
        without_spares(monkeypatch)
    if request.param == machines.BACKEND:
        require(machines.missing() is None, machines.missing() or "")
        without_spares(monkeypatch)
    if request.param in differences.ELSEWHERE:
        request.getfixturevalue("elsewhere")
        return "native"
    return request.param


@pytest.fixture(scope="session")
def sqlite_server() -> Iterator[RunningServer]:
    import hood_server  # which takes a second, and few processes need it

    with hood_server.running_server(strict=False, private_networks=[hood_server.TENANT]) as running:
        yield running


@pytest.fixture(scope="session")
def server_and_worker() -> Iterator[tuple[RunningServer, WorkerProcess]]:
    """A server whose sandboxes are on a worker, which is another process."""
    import hood_cluster

    with hood_cluster.running_cluster() as cluster:
        running = cluster.server()
        worker = cluster.worker("w1", "--slots", "200")
        hood_cluster.wait_for_workers(running, 1)
        yield running, worker


@pytest.fixture(scope="session")
def cluster_server(server_and_worker: tuple[RunningServer, WorkerProcess]) -> RunningServer:
    return server_and_worker[0]


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[RunningServer]:
    import hood_server
    import postgresql

    with postgresql.running() as postgres:
        settings = {"database": postgres.create_database(), "private_networks": [hood_server.TENANT]}
        with hood_server.running_server(strict=False, **settings) as running:
            yield running


@pytest.fixture
def server(request: pytest.FixtureRequest) -> RunningServer:
    """The one of the test's place."""
    place = differences.backend_of(request.node)  # pyright: ignore[reportUnknownMemberType]
    return request.getfixturevalue(_SERVERS[place])


@pytest.fixture
def elsewhere(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sandboxes of the test are at a server: by the environment, and those of the async API by another opener."""
    server: RunningServer = request.getfixturevalue("server")
    monkeypatch.setenv("FUMEHOOD_SERVER", server.url)
    monkeypatch.setenv("FUMEHOOD_KEY", server.key)
    module = cast("ModuleType", request.module)  # pyright: ignore[reportUnknownMemberType]
    opener = connect(server.url, server.key).sandbox
    monkeypatch.setattr(module, "AsyncSandbox", opener, raising=False)
    monkeypatch.setattr("containers.AsyncSandbox", opener)


@pytest.fixture
def recorded(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> Recorded:
    if "elsewhere" not in request.fixturenames:
        log = AuditLog.at(tmp_path / "audit")
        return Recorded(log, {"audit": log}, 0)
    log = _log_elsewhere(request)
    return Recorded(log, {}, max((record.seq for record in log.find(Query())), default=0))


def _log_elsewhere(request: pytest.FixtureRequest) -> AuditLog:
    """What happens in a sandbox is recorded by the host that has it."""
    if differences.backend_of(request.node) != "cluster":  # pyright: ignore[reportUnknownMemberType]
        server: RunningServer = request.getfixturevalue("server")
        return server.log
    import hood_server

    worker: WorkerProcess = request.getfixturevalue("server_and_worker")[1]
    return worker.log_of(hood_server.TENANT)


@pytest.fixture
def store(
    backend: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """The folder of snapshots and named sandboxes, for this test alone."""
    if "elsewhere" in request.fixturenames:
        server: RunningServer = request.getfixturevalue("server")
        folder = server.store
    else:
        folder = tmp_path / "sandboxes"
        monkeypatch.setenv("FUMEHOOD_SANDBOXES", str(folder))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def make_policy(backend: str) -> Callable[..., Policy]:
    """A policy for the backend under test, from sections given as mappings."""

    def make(**sections: object) -> Policy:
        return Policy(backend=backend, **sections)

    return make


@pytest.fixture
def open_box(make_policy: Callable[..., Policy]) -> Iterator[Callable[..., Sandbox]]:
    """Opens sandboxes and closes them after the test."""
    with ExitStack() as stack:

        def open_one(**sections: object) -> Sandbox:
            return stack.enter_context(Sandbox(make_policy(**sections)))

        yield open_one


@pytest.fixture(scope="session")
def containers() -> Iterator[OpenContainers[Sandbox]]:
    containers = OpenContainers[Sandbox]()
    yield containers
    for box in containers.take_all():
        box.__exit__(None, None, None)


@pytest.fixture
def lend_box(
    request: pytest.FixtureRequest, make_policy: Callable[..., Policy], containers: OpenContainers[Sandbox]
) -> Iterator[Callable[..., Sandbox]]:
    """Opens a sandbox. Tests share a container of one policy; each has an empty workspace."""
    item: pytest.Item = request.node  # pyright: ignore[reportUnknownMemberType]
    with ExitStack() as stack:

        def lend(**sections: object) -> Sandbox:
            policy = make_policy(**sections)
            box = containers.take(policy, item) or Sandbox(policy).__enter__()
            stack.callback(take_back, policy, box)
            return box

        def take_back(policy: Policy, box: Sandbox) -> None:
            is_kept = containers.is_wanted(policy) and _is_emptied(box)
            for each in containers.put_back(policy, box) if is_kept else [box]:
                each.__exit__(None, None, None)

        yield lend


@pytest.fixture
def box(lend_box: Callable[..., Sandbox]) -> Sandbox:
    """An open sandbox that denies everything."""
    return lend_box()


@pytest.fixture(scope="module")
async def async_containers() -> AsyncIterator[OpenContainers[AsyncSandbox]]:
    """Those of the asynchronous API are of one event loop; where it is kept, tests cannot start one of their own."""
    async with open_containers() as containers:
        yield containers


@pytest.fixture
def shared_box(
    request: pytest.FixtureRequest, make_policy: Callable[..., Policy], async_containers: OpenContainers[AsyncSandbox]
) -> LendSandbox:
    """Opens what `lend_box` does. A test of what ends with a sandbox opens its own."""

    def lend(**sections: object) -> AbstractAsyncContextManager[AsyncSandbox]:
        item: pytest.Item = request.node  # pyright: ignore[reportUnknownMemberType]
        return lent(async_containers, make_policy(**sections), item)

    return lend


def _is_emptied(box: Sandbox) -> bool:
    """Not one that the test has closed, lost or filled with what cannot be removed."""
    try:
        # Most tests leave nothing, and to look costs a tenth of a run.
        return not box.files.list() or box.run(argv=EMPTY).ok
    except FumehoodError:
        return False
