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
from typing import TYPE_CHECKING

import differences
import engine
import pytest
import sampling
from containers import lent
from contract.recorded import Recorded
from requirements import require

from fumehood import AsyncSandbox, FumehoodError, Policy, Sandbox
from fumehood.audit import AuditLog, Query
from fumehood.remote.server import connect

if TYPE_CHECKING:
    from hood_server import RunningServer

SharedBox = Callable[[], AbstractAsyncContextManager[AsyncSandbox]]

# An engine of the tests' own needs root; an ordinary user tests what an ordinary user has.
# `make test-all` has a server with PostgreSQL, too: to a sandbox it makes no difference what its tenants are kept in.
REMOTE = ["remote", *(["remote-postgresql"] if sampling.is_whole() and os.geteuid() == 0 else ())]
BACKENDS = ["native", *(engine.BACKENDS if os.geteuid() == 0 else ()), *REMOTE]


# What these are about is not the client's: mounts of its files, its audit log, its package index, its own network.
NOT_REMOTE = (
    "test_audit.py",
    "test_egress_records.py",
    "test_installation.py",
    "test_mounts.py",
    "test_surroundings.py",
)
NOT_ON_GVISOR = ("test_languages.py", "test_libraries.py", "test_plain_python.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = [item for item in items if not (_takes_too_long(item) or _lacks_language(item) or _is_of_client(item))]
    differences.mark(items)


def _takes_too_long(item: pytest.Item) -> bool:
    """These are about interpreters and compilers, not about the backend, and gVisor takes many minutes for them."""
    return item.path.name in NOT_ON_GVISOR and "[gvisor" in item.name


def _is_of_client(item: pytest.Item) -> bool:
    return item.path.name in NOT_REMOTE and "[remote" in item.name


def _lacks_language(item: pytest.Item) -> bool:
    """The image of the tests has some; that a policy finds the others in an image that has them is the same code."""
    wanted = {mark.args[0] for mark in item.iter_markers("language")} | {differences.parameter_of(item, "language")}
    has = {"", "python", "sh", "bash", *engine.LANGUAGES}
    return differences.backend_of(item) in engine.BACKENDS and not wanted <= has


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    if request.param in engine.BACKENDS:
        require(engine.missing() is None, engine.missing() or "")
    if request.param in REMOTE:
        request.getfixturevalue("elsewhere")
        return "native"
    return request.param


@pytest.fixture(scope="session")
def sqlite_server() -> Iterator[RunningServer]:
    import hood_server  # which takes a second, and few processes need it

    with hood_server.running_server(strict=False, private_networks=[hood_server.TENANT]) as running:
        yield running


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
    return request.getfixturevalue("postgresql_server" if place == "remote-postgresql" else "sqlite_server")


@pytest.fixture
def elsewhere(request: pytest.FixtureRequest, server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sandboxes of the test are at a server: by the environment, and those of the async API by another opener."""
    monkeypatch.setenv("FUMEHOOD_SERVER", server.url)
    monkeypatch.setenv("FUMEHOOD_KEY", server.key)
    module: ModuleType = request.module  # pyright: ignore[reportUnknownMemberType]
    opener = connect(server.url, server.key).sandbox
    monkeypatch.setattr(module, "AsyncSandbox", opener, raising=False)
    monkeypatch.setattr("containers.AsyncSandbox", opener)


@pytest.fixture
def recorded(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> Recorded:
    if "elsewhere" not in request.fixturenames:
        log = AuditLog.at(tmp_path / "audit")
        return Recorded(log, {"audit": log}, 0)
    server: RunningServer = request.getfixturevalue("server")
    return Recorded(server.log, {}, max((record.seq for record in server.log.find(Query())), default=0))


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


@pytest.fixture(scope="module")
def containers() -> Iterator[dict[str, Sandbox]]:
    """Open sandboxes, by the digest of their policy. A container takes as long to start as ten runs in it."""
    opened: dict[str, Sandbox] = {}
    yield opened
    for box in opened.values():
        box.__exit__(None, None, None)


@pytest.fixture
def lend_box(
    backend: str, make_policy: Callable[..., Policy], containers: dict[str, Sandbox]
) -> Iterator[Callable[..., Sandbox]]:
    """Opens a sandbox. The tests of a module share a container of one policy; each has an empty workspace."""
    with ExitStack() as stack:

        def lend(**sections: object) -> Sandbox:
            policy = make_policy(**sections)
            box = containers.pop(policy.digest, None) or Sandbox(policy).__enter__()
            stack.callback(take_back, policy, box)
            return box

        def take_back(policy: Policy, box: Sandbox) -> None:
            if backend in engine.BACKENDS and policy.digest not in containers and _is_emptied(box):
                containers[policy.digest] = box
            else:
                box.__exit__(None, None, None)

        yield lend


@pytest.fixture
def box(lend_box: Callable[..., Sandbox]) -> Sandbox:
    """An open sandbox that denies everything."""
    return lend_box()


@pytest.fixture(scope="module")
async def async_containers() -> AsyncIterator[dict[str, AsyncSandbox]]:
    """The same for tests of the asynchronous API."""
    opened: dict[str, AsyncSandbox] = {}
    yield opened
    for box in opened.values():
        await box.__aexit__(None, None, None)


@pytest.fixture
def shared_box(make_policy: Callable[..., Policy], async_containers: dict[str, AsyncSandbox]) -> SharedBox:
    """Opens what `box` is. A test of what ends with a sandbox opens its own."""
    return lambda: lent(async_containers, make_policy())


def _is_emptied(box: Sandbox) -> bool:
    """Not one that the test has closed, lost or filled with what cannot be removed."""
    try:
        # Most tests leave nothing, and to look costs a tenth of a run.
        return not box.files.list() or box.run(argv=["find", "/workspace", "-mindepth", "1", "-delete"]).ok
    except FumehoodError:
        return False
