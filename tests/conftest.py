"""What every test shares: the event loop of async tests (`pytest.mark.anyio`), a Docker engine, an audit log."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import differences
import engine
import machines
import pytest
import sampling
from hypothesis import settings
from live import loaded_hood

from fumehood.audit import log as audit_log

SERVER_FOLDERS = "/var/tmp/hood-server-"
settings.register_profile("sample", max_examples=sampling.amount(30, whole=100))
settings.load_profile("sample")


def pytest_configure(config: pytest.Config) -> None:
    """Those who test side by side share the processes that have done imports, which end with the one that began."""
    if not hasattr(config, "workerinput"):
        _hear_signals()
        loaded_hood.begin()


def _hear_signals() -> None:
    """What a script starts in the background, or `nohup`, ignores these, and so would all that tests start."""
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def audit_folder() -> Iterator[str]:
    """Also for the processes that tests start: nothing is written to the user's own log or approvals."""
    folder = tempfile.mkdtemp(prefix="hood-audit-", dir="/var/tmp")
    os.environ["FUMEHOOD_AUDIT"] = folder
    os.environ["FUMEHOOD_APPROVALS"] = os.path.join(folder, "approvals")
    os.environ["FUMEHOOD_TRUST"] = os.path.join(folder, "trust")
    os.environ["FUMEHOOD_SANDBOXES"] = os.path.join(folder, "sandboxes")
    os.environ["FUMEHOOD_LOGIN"] = os.path.join(folder, "login.json")
    os.environ["FUMEHOOD_SERVER_STATE"] = os.path.join(folder, "server")
    os.environ["FUMEHOOD_KEEPER"] = "off"
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(autouse=True)
def _close_logs(audit_folder: str) -> Iterator[None]:
    """A log stays open as long as its process lives, and a test has many; a server's serves other tests, too."""
    yield
    for log in list(audit_log._logs.values()):
        if not str(log.folder).startswith((audit_folder, SERVER_FOLDERS)):
            log.close()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported stays: looking for garbage in it takes a third of the time, and would go on in every test."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None, None, None]:
    """Samples when the suites have marked what differs, by all that there was before options chose."""
    on_native = sampling.functions_on_native(items)
    yield
    sampling.deselect(config, items, on_native)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The few tests that run alone are in few modules; importing the others for nothing takes half a minute."""
    is_module = collection_path.name.startswith("test_") and collection_path.suffix == ".py"
    wants_serial = config.option.markexpr == "serial"
    return True if is_module and wants_serial and "mark.serial" not in collection_path.read_text() else None


def pytest_collection_finish(session: pytest.Session) -> None:
    """Before the first test and its clock: making the engine's image can take longer than a test may."""
    wanted = any(map(_needs_engine, session.items))
    if wanted and not session.config.option.collectonly and engine.missing() is None:
        os.environ["DOCKER_HOST"] = engine.use()
    needs_image = any(map(_needs_machines, session.items))
    if needs_image and not session.config.option.collectonly and machines.missing() is None:
        os.environ["FUMEHOOD_MACHINES"] = machines.use()


def _needs_machines(item: pytest.Item) -> bool:
    return (
        differences.backend_of(item) == machines.BACKEND
        or getattr(getattr(item, "module", None), "machines", None) is machines
    )


def _needs_engine(item: pytest.Item) -> bool:
    """It runs on a backend that is built on one, or its module uses it directly."""
    return (
        differences.backend_of(item) in engine.BACKENDS
        or getattr(getattr(item, "module", None), "engine", None) is engine
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    differences.look_again(item, call, report)
    return report
