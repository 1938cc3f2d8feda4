"""Every test of the runtime runs on each of them, on asyncio and on trio: with envelopes as they are, as bytes on their
way, and on NATS, with the application in the same process as the agents and in another one."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import nats_server
import pytest
from sampling import is_whole
from unit.runtime.distant_runtime import DistantRuntime
from unit.runtime.nats_differences import mark
from unit.runtime.sample_agents import MakeRuntime

from fumehood.runtime import LocalRuntime, SerialisingRuntime
from fumehood.runtime.nats import NatsRuntime

_RUNTIMES = {"local": LocalRuntime, "bytes": SerialisingRuntime, "nats": NatsRuntime, "distant": DistantRuntime}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The client of NATS needs asyncio. There, a test runs with its first parameters; with all in `make test-all`."""
    seen: set[tuple[object, ...]] = set()
    kept: list[pytest.Item] = []
    dropped: list[pytest.Item] = []
    for item in items:
        kind = (getattr(item, "originalname", None), item.path, _parameter(item, "make_runtime"))
        is_on_trio = _parameter(item, "anyio_backend") == "trio"
        is_dropped = _is_on_nats(item) and (is_on_trio or (kind in seen and not is_whole()))
        (dropped if is_dropped else kept).append(item)
        if not is_dropped:
            seen.add(kind)
    config.hook.pytest_deselected(items=dropped)
    items[:] = kept
    mark([item for item in items if _is_on_nats(item)])


def _is_on_nats(item: pytest.Item) -> bool:
    return _parameter(item, "make_runtime") in ("nats", "distant")


def _parameter(item: pytest.Item, name: str) -> object:
    callspec = getattr(item, "callspec", None)
    return None if callspec is None else callspec.params.get(name)


@pytest.fixture(scope="session", params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="session")
def nats() -> Iterator[nats_server.NatsServer]:
    with nats_server.running() as server:
        yield server


@pytest.fixture
def space() -> str:
    """Whose streams no other test uses."""
    return secrets.token_hex(4)


@pytest.fixture(params=_RUNTIMES)
def make_runtime(request: pytest.FixtureRequest) -> MakeRuntime:
    kind = _RUNTIMES[request.param]

    def make(**options: object) -> LocalRuntime:
        options = {"audit": False, **options}
        if issubclass(kind, NatsRuntime):
            server: nats_server.NatsServer = request.getfixturevalue("nats")
            return kind(server.url, space=request.getfixturevalue("space"), **options)
        return kind(**options)

    return make
