"""Sandboxes to attack, on every backend there is, and things of the host worth stealing."""

from __future__ import annotations

import itertools
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import differences
import engine
import machines
import pytest
import sampling
from containers import LendSandbox, OpenContainers, lent, open_containers, without_spares
from requirements import require

from fumehood import AsyncSandbox, Policy

pytest.register_assert_rewrite("escape.laboratory")

# An engine of the tests' own needs root; an ordinary user attacks what an ordinary user has.
BACKENDS = ["native", *((*engine.BACKENDS, machines.BACKEND) if os.geteuid() == 0 else ())]
SECONDS_OF_TRIES = sampling.amount(0.3, whole=4)
_unused_inode_limits = itertools.count(40_000)

MakeSandbox = Callable[..., AsyncSandbox]


# A machine shares no folder with the host, which tests/live/test_microvm.py shows.
NOT_ON_MACHINES = ("test_files_of_mounts.py",)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = [item for item in items if not _is_of_mounts(item)]
    differences.mark(items)


def _is_of_mounts(item: pytest.Item) -> bool:
    return item.path.name in NOT_ON_MACHINES and differences.backend_of(item) == machines.BACKEND


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param in engine.BACKENDS:
        require(engine.missing() is None, engine.missing() or "")
        without_spares(monkeypatch)
    if request.param == machines.BACKEND:
        require(machines.missing() is None, machines.missing() or "")
        without_spares(monkeypatch)
    return request.param


@pytest.fixture
def tries() -> Callable[[int], Iterator[int]]:
    """For what needs many: as often as asked, or as there is time for. Containers are slower, and gVisor by far."""

    def count_up_to(most: int) -> Iterator[int]:
        end = time.monotonic() + SECONDS_OF_TRIES
        return itertools.takewhile(lambda number: number < 10 or time.monotonic() < end, range(most))

    return count_up_to


@pytest.fixture
def make_sandbox(backend: str) -> MakeSandbox:
    """A sandbox, not yet open, under a policy with these keys. Equal policies share a warm cell."""

    def make(**policy: object) -> AsyncSandbox:
        return AsyncSandbox(Policy(backend=backend, **policy))

    return make


@pytest.fixture
def make_cold_sandbox(make_sandbox: MakeSandbox) -> Callable[[], AsyncSandbox]:
    """Its cell is started now: nothing of it was there before the test prepared the host."""
    return lambda: make_sandbox(resources={"inodes": next(_unused_inode_limits)})


@pytest.fixture(scope="package")
async def async_containers() -> AsyncIterator[OpenContainers[AsyncSandbox]]:
    async with open_containers() as containers:
        yield containers


@pytest.fixture
def lend_sandbox(
    request: pytest.FixtureRequest, backend: str, async_containers: OpenContainers[AsyncSandbox]
) -> LendSandbox:
    """Opens what `make_sandbox` makes, or a container that another test had; each test has an empty workspace."""

    def lend(**policy: object) -> AbstractAsyncContextManager[AsyncSandbox]:
        item: pytest.Item = request.node  # pyright: ignore[reportUnknownMemberType]
        return lent(async_containers, Policy(backend=backend, **policy), item)

    return lend


@pytest.fixture
async def sandbox(lend_sandbox: LendSandbox) -> AsyncIterator[AsyncSandbox]:
    """Everything denied that can be."""
    async with lend_sandbox() as sandbox:
        yield sandbox


@pytest.fixture
def canary() -> str:
    """A secret that is nowhere but in the memory of the test, and wherever the test puts it."""
    return f"canary-{secrets.token_hex(16)}"


@pytest.fixture
def host_folder() -> Iterator[Path]:
    """A folder of the host outside of /tmp, where a sandbox has something of its own."""
    folder = Path(tempfile.mkdtemp(prefix="hood-escape-", dir="/var/tmp"))
    try:
        folder.chmod(0o755)
        yield folder
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def host_secret(host_folder: Path, canary: str) -> Path:
    """A file that anybody on the host may read."""
    path = host_folder / "secret.txt"
    path.write_text(canary)
    return path
