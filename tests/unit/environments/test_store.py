"""Environments are found when they are whole, kept while they are used, and swept when they are not."""

from __future__ import annotations

import os
import stat
from contextlib import closing
from pathlib import Path

import pytest
from unit.environments.making import put, spec

from fumehood.environments import EnvironmentStore
from fumehood.environments.manifest import Package, read_manifest
from fumehood.host import locks

SIX, OTHER = spec("six"), spec("iniconfig")
FOR_EVER = 10**9


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "home/environments"


def test_what_is_there_is_found_with_its_manifest(root: Path) -> None:
    found = put(root, SIX).find(SIX.key)
    assert found is not None
    assert (found.key, found.folder) == (SIX.key, root / SIX.key / "packages")
    assert found.digest.startswith("sha256:")
    assert found.manifest.asked == ("six",)
    assert found.manifest.size_bytes == len("answer = 42\n")


def test_what_is_not_there_is_not_found(root: Path) -> None:
    assert EnvironmentStore(root).find(SIX.key) is None
    assert EnvironmentStore(root).list() == []


@pytest.mark.parametrize("text", ["", "{", "{}", "[]", '{"key": "' + SIX.key + '"}'])
def test_a_damaged_environment_is_not_found_and_swept(root: Path, text: str) -> None:
    store = put(root, SIX)
    (root / SIX.key / "manifest.json").write_text(text)
    assert store.find(SIX.key) is None
    store.sweep()
    assert os.listdir(root) == []


def test_an_environment_in_the_place_of_another_is_not_found(root: Path) -> None:
    store = put(root, SIX)
    (root / SIX.key).rename(root / OTHER.key)
    assert store.find(OTHER.key) is None


def test_the_one_used_last_is_listed_first(root: Path) -> None:
    put(root, SIX)
    store = put(root, OTHER)
    os.utime(root / SIX.key, (1, 1))
    assert [each.key for each in store.list()] == [OTHER.key, SIX.key]
    store.use(SIX).close()
    assert [each.key for each in store.list()] == [SIX.key, OTHER.key]


def test_all_that_is_unused_is_pruned_and_nothing_is_left(root: Path) -> None:
    put(root, SIX)
    store = put(root, OTHER)
    assert {each.key for each in store.prune()} == {SIX.key, OTHER.key}
    assert os.listdir(root) == []


def test_what_was_used_lately_is_kept(root: Path) -> None:
    put(root, SIX)
    store = put(root, OTHER)
    os.utime(root / SIX.key, (1, 1))
    assert [each.key for each in store.prune(unused_for_seconds=3600)] == [SIX.key]
    assert [each.key for each in store.list()] == [OTHER.key]


def test_what_is_in_use_cannot_be_pruned(root: Path) -> None:
    store = put(root, SIX)
    with closing(store.use(SIX)) as lease, closing(store.use(SIX)):
        assert store.prune() == []
        assert (lease.environment.folder / "six.py").exists()
    assert len(store.prune()) == 1


@pytest.mark.parametrize("kind", ["building", "removing"])
def test_leftovers_of_the_dead_are_swept(root: Path, kind: str) -> None:
    store = put(root, SIX)
    for key in (SIX.key, OTHER.key):
        leftover = root / f".{kind}-{key}"
        (leftover / "packages").mkdir(parents=True)
        (leftover / "packages/half.py").touch()
        (leftover / "packages").chmod(0o555)
    store.sweep()
    assert sorted(os.listdir(root)) == sorted([SIX.key, f"{SIX.key}.lock"])


def test_what_the_living_build_is_not_swept(root: Path) -> None:
    store = EnvironmentStore(root)
    (root / f".building-{SIX.key}").mkdir()
    lock = locks.try_exclusive(root / f"{SIX.key}.lock")
    assert lock
    with closing(lock):
        store.sweep()
        assert store.prune() == []
        assert (root / f".building-{SIX.key}").exists()
    store.sweep()
    assert os.listdir(root) == []


def test_files_that_are_not_ours_are_left_alone(root: Path) -> None:
    store = EnvironmentStore(root)
    (root / "notes.txt").write_text("mine")
    store.prune()
    assert os.listdir(root) == ["notes.txt"]


def test_whoever_waits_is_told_for_whom_and_can_stop(root: Path) -> None:
    store = EnvironmentStore(root)
    lock = locks.try_exclusive(root / f"{SIX.key}.lock")
    assert lock
    told: list[str] = []

    def heartbeat() -> None:
        if told:
            raise InterruptedError

    with closing(lock):
        for act in (store.use, store.build):
            told.clear()
            with pytest.raises(InterruptedError):
                act(SIX, told.append, heartbeat)
            assert told == [f"waiting for process {os.getpid()}, which works on the same environment"]


def test_a_lock_is_the_users_alone(root: Path) -> None:
    put(root, SIX).use(SIX).close()
    assert stat.S_IMODE((root / f"{SIX.key}.lock").stat().st_mode) == 0o600


def test_a_manifest_names_what_is_installed(root: Path) -> None:
    put(root, SIX)
    packages = root / OTHER.key / "packages"
    (packages / "iniconfig-2.3.1.dist-info").mkdir(parents=True)
    (packages / "iniconfig-2.3.1.dist-info/METADATA").write_text(
        "Metadata-Version: 2.1\nName: iniconfig\nVersion: 2.3.1\n"
    )
    from fumehood.environments.manifest import describe, write_manifest

    write_manifest(root / OTHER.key, describe(OTHER, packages, content="sha256:0", size_bytes=0, built_at="now"))
    manifest = read_manifest(root / OTHER.key)
    assert manifest is not None
    assert manifest.installed == (Package(name="iniconfig", version="2.3.1"),)
