"""The store keeps what it acknowledged, each content once, and collects what nothing needs."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import sampling

from fumehood.errors import DamagedSnapshotError, SandboxBusyError, UsageError
from fumehood.policy import Policy
from fumehood.snapshots import NamedSandbox, SnapshotEntry, SnapshotManifest, SnapshotStore
from fumehood.snapshots.garbage import collect, make_room
from fumehood.snapshots.limits import StoreLimits
from fumehood.snapshots.records import SnapshotRecord

MANY = 40  # more than are synced one by one


@pytest.fixture
def store(tmp_path: Path) -> SnapshotStore:
    return SnapshotStore(tmp_path / "store")


def put(store: SnapshotStore, contents: dict[str, bytes], name: str | None = None) -> SnapshotManifest:
    with store.writing() as writer:
        entries = [
            SnapshotEntry(path, "file", 0o644, 0, len(data), writer.batch.add(data)) for path, data in contents.items()
        ]
        manifest = SnapshotManifest.of(entries)
        writer.commit(manifest)
        if name:
            store.record_snapshot(SnapshotRecord.of(manifest, name, None))
    return manifest


def blobs(store: SnapshotStore) -> int:
    return sum(1 for _ in store.blobs.digests())


def test_equal_contents_are_stored_once_and_read_as_they_were(store: SnapshotStore) -> None:
    put(store, {"a": b"same", "b": b"same"}, "one")
    two = put(store, {"c": b"same", **{f"n{number}": b"%d" % number for number in range(MANY)}}, "two")
    assert blobs(store) == 1 + MANY
    assert [store.read(entry, two.id) for entry in two.files[:2]] == [b"same", b"0"]
    assert store.find_snapshot("two").snapshot == store.find_snapshot(two.id[:8]).snapshot == two.id


def test_a_damaged_content_is_an_error_that_names_it_and_a_new_copy_of_it_heals_it(store: SnapshotStore) -> None:
    manifest = put(store, {"a": b"precious"}, "one")
    store.blobs.path(manifest.files[0].sha256).write_bytes(b"Precious")
    with pytest.raises(DamagedSnapshotError, match=rf"{manifest.id[:12]}.*'a'.*not what was written"):
        store.read(manifest.files[0], manifest.id)
    put(store, {"b": b"precious"})
    assert store.read(manifest.files[0], manifest.id) == b"precious"


def test_garbage_is_what_neither_a_record_nor_a_process_needs(store: SnapshotStore) -> None:
    put(store, {"a": b"kept"}, "one")
    leased = put(store, {"a": b"leased"})
    lease = store.lease(leased.id)
    put(store, {"a": b"garbage"})
    (store.root / "drafts" / "left").write_bytes(b"by a crash")
    assert collect(store).files == 3  # a draft, a manifest and a content
    assert blobs(store) == 2
    lease.close()
    store.remove_snapshot("one")
    collect(store)
    assert {path for path in store.root.rglob("*") if path.is_file()} == {store.root / "lock", store.root / "commit"}


def test_nothing_is_collected_by_a_manifest_that_cannot_be_read(store: SnapshotStore) -> None:
    manifest = put(store, {"a": b"kept"}, "one")
    store.path("manifests", manifest.id).write_bytes(b"{}")
    found = collect(store)
    assert found.problem is not None
    assert manifest.id[:12] in found.problem
    assert blobs(store) == 1


def test_what_was_not_used_for_long_is_collected(store: SnapshotStore) -> None:
    manifest = put(store, {"a": b"x"})
    record = NamedSandbox.new("old", manifest, Policy())
    store.create(record.model_copy(update={"used": record.used - 181 * 24 * 3600}))
    store.create(NamedSandbox.new("new", manifest, Policy()))
    with closing(store.acquire("old")):
        assert collect(store).sandboxes == ()
    assert [each.name for each in collect(store).sandboxes] == ["old"]
    assert [each.name for each in store.sandboxes()] == ["new"]


def test_a_limit_names_itself_and_what_to_do(store: SnapshotStore) -> None:
    store.limits = replace(StoreLimits(), sandboxes=1, snapshots=1, size_bytes=20_000)
    manifest = put(store, {"a": b"12345"}, "one")
    store.create(NamedSandbox.new("one", manifest, Policy()))
    with pytest.raises(UsageError, match=r"1 named sandboxes.*hood sandbox rm.*FUMEHOOD_SANDBOX_LIMITS=sandboxes=2"):
        store.create(NamedSandbox.new("two", manifest, Policy()))
    with pytest.raises(UsageError, match=r"1 snapshots.*rm --snapshot"):
        put(store, {"a": b"1"}, "two")
    with pytest.raises(UsageError, match=r"is the limit; .*hood gc"):
        put(store, {"a": b"123456"})
    assert list((store.root / "drafts").iterdir()) == []


def test_every_file_is_charged_for_what_it_takes_of_the_disk(store: SnapshotStore) -> None:
    store.limits = replace(StoreLimits(), size_bytes=1_000_000)
    with pytest.raises(UsageError, match="is the limit"):
        put(store, {f"n{number}": b"%d" % number for number in range(300)})
    names = SnapshotManifest.of(SnapshotEntry(f"{number}{'n' * 250}", "folder") for number in range(4000))
    with store.writing() as writer, pytest.raises(UsageError, match="is the limit"):
        writer.commit(names)


def test_what_another_process_adds_and_removes_is_counted_too(store: SnapshotStore) -> None:
    put(store, {str(number): b"%d" % number for number in range(MANY)}, "one")
    long_ago = 10**9
    for folder in store.blobs.root.iterdir():
        os.utime(folder, ns=(long_ago, long_ago))  # so that they count as settled
    before, other = store.blobs.charged_bytes(), SnapshotStore(store.root)
    added = put(other, {"new": b"new"}, "two")
    assert store.blobs.charged_bytes() == other.blobs.charged_bytes() == before + 4096
    other.blobs.path(added.files[0].sha256).unlink()
    assert store.blobs.charged_bytes() == before == MANY * 4096


def test_room_is_made_without_waiting_and_without_removing_what_is_old(store: SnapshotStore) -> None:
    store.limits = replace(StoreLimits(), size_bytes=30_000)
    record = NamedSandbox.new("old", put(store, {"a": b"kept"}), Policy())
    store.create(record.model_copy(update={"used": 0.0}))
    put(store, {"a": b"garbage"})
    put(store, {"a": b"more of it"})
    with store.writing():  # as another process does, for as long as it likes
        make_room(store)
    assert blobs(store) == 3
    make_room(store)
    assert blobs(store) == 1
    assert store.has("old")


@pytest.mark.parametrize("text", ["size=1X", "rooms=3", "sandboxes=-1", "days", "snapshots=1e3"])
def test_a_limit_that_is_not_understood_is_an_error(text: str) -> None:
    with pytest.raises(UsageError, match="FUMEHOOD_SANDBOX_LIMITS"):
        StoreLimits.read({"FUMEHOOD_SANDBOX_LIMITS": text})


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "A", "-x", ".x", "x" * 64, "a\n", "é", "a b"])
def test_a_name_is_a_single_harmless_file_name(store: SnapshotStore, name: str) -> None:
    with pytest.raises(UsageError, match="cannot be the name"):
        store.find(name)
    with pytest.raises(UsageError, match="cannot be the name"):
        store.acquire(name, is_new=True)


def test_a_sandbox_in_use_names_its_user(store: SnapshotStore) -> None:
    store.create(NamedSandbox.new("one", put(store, {}), Policy()))
    with closing(store.acquire("one")), pytest.raises(SandboxBusyError, match=f"process {os.getpid()}"):
        store.acquire("one")
    store.remove("one")
    assert list((store.root / "locks").iterdir()) == []


def test_a_policy_is_read_as_it_was_written(store: SnapshotStore) -> None:
    policy = Policy(
        name="odd",
        network={"allow": [{"host": "a.example", "ports": [443]}]},
        resources={"memory": "1G"},
        filesystem={"outputs": ["**"]},
    )
    store.create(NamedSandbox.new("one", put(store, {}), policy))
    assert store.find("one").read_policy() == policy


def test_a_folder_of_another_kind_or_user_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o755)
    with pytest.raises(UsageError, match="open to others"):
        SnapshotStore(tmp_path / "open")


_WRITER = """
import sys
from pathlib import Path
from fumehood.snapshots import SnapshotStore
from unit.snapshots.test_store import put
store = SnapshotStore(Path(sys.argv[1]))
for number in range(1000):
    put(store, {"a": b"%d" % number, "b": bytes(200_000)}, f"n{number}")
    print(number, flush=True)
"""


@pytest.mark.parametrize("acknowledged", range(sampling.amount(2, whole=20)))
def test_what_was_acknowledged_survives_a_kill_and_the_rest_is_garbage(tmp_path: Path, acknowledged: int) -> None:
    """The process is killed right after it said that a snapshot is there, while it writes the next ones."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", _WRITER, str(tmp_path / "store")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        for _ in range(acknowledged + 1):
            process.stdout.readline()
        process.kill()
    store = SnapshotStore(tmp_path / "store")
    assert collect(store).problem is None
    for number in range(acknowledged + 1):
        manifest = store.manifest(store.find_snapshot(f"n{number}").snapshot)
        assert store.read(manifest.files[0], manifest.id) == b"%d" % number
    live = {digest for record in store.snapshots() for digest in store.manifest(record.snapshot).digests}
    assert {digest for digest, _ in store.blobs.digests()} == live
    assert list((store.root / "drafts").iterdir()) == []
