"""A keeper of the tests' own, and `hood run` both ways: done by the keeper, and by the process itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from live.cli_host import hood
from live.traces import descendants, wait_until

import fumehood_client
from fumehood.cli.keeper import command
from fumehood.host import locks


def status() -> dict[str, Any]:
    answer = command.ask("status")
    assert answer is not None, "no keeper answers"
    return answer


def lock_of_keeper() -> Path:
    return (
        Path(os.fsdecode(fumehood_client.folder_of_sockets(os.environb))) / f"{fumehood_client.name_of_keeper()}.lock"
    )


def start_keeper() -> int:
    """Its process number, once it serves."""
    assert hood("run", "-c", "pass").returncode == 0
    wait_until(lambda: command.ask("status"), 60, "the keeper serves")
    return status()["process"]


def stop_keeper() -> None:
    """Returns when everything of it is gone."""
    wait_until(lambda: command.ask("stop") is None and is_gone(), 60, "the keeper has ended")


def is_gone() -> bool:
    lock = locks.try_exclusive(lock_of_keeper())
    if lock:
        lock.close()
    return lock is not None


def family() -> set[int]:
    """Every process of the keeper and of the runs that it does."""
    return descendants(status()["process"])


@pytest.fixture(scope="module")
def module_keeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One for the tests of a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("runtime")))
        patch.setenv("FUMEHOOD_KEEPER", "on")
        start_keeper()
        yield
        stop_keeper()


@pytest.fixture
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """How `hood run` is done. That the keeper did it is checked, and that it has nothing left to do."""
    if request.param == "plain":
        monkeypatch.setenv("FUMEHOOD_KEEPER", "off")
        yield request.param
        return
    request.getfixturevalue("module_keeper")
    monkeypatch.setenv("FUMEHOOD_KEEPER", "on")
    before = status()["served"]
    yield request.param
    wait_until(lambda: status()["runs"] == 0, 10, "no run is under way")
    assert status()["served"] > before, "the keeper did nothing of this"
