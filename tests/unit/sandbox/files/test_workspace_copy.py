"""A workspace is saved as it is; a service that was taken over gets no content that its sandbox was not given."""

from __future__ import annotations

import hashlib
import json
import mmap
import os
from pathlib import Path

import pytest
from unit.sandbox.files.rooms import Room, talking_to
from unit.sandbox.files.test_hostile_service import entry, listing, saying

from fumehood.errors import FumehoodError, UsageError
from fumehood.guest.contract.frames import encode
from fumehood.policy import Policy
from fumehood.sandbox.files.workspace_copy import WorkspaceRestorer, WorkspaceSaver
from fumehood.snapshots import SnapshotManifest, SnapshotStore

pytestmark = pytest.mark.anyio


@pytest.fixture
def store(tmp_path: Path) -> SnapshotStore:
    return SnapshotStore(tmp_path / "store")


async def save(
    room: Room, store: SnapshotStore, known: SnapshotManifest | None = None, *, is_still: bool = True
) -> SnapshotManifest:
    async with room.converse() as conversation:
        with store.writing() as writer:
            digests = known.digests if known else {}
            saver = WorkspaceSaver(conversation, writer, digests, room.policy, is_still=is_still)
            manifest = await saver.save()
            writer.commit(manifest)
    return manifest


async def test_a_change_through_a_mapping_is_saved_although_no_time_tells_of_it(
    room: Room, store: SnapshotStore
) -> None:
    file = room.workspace / "f"
    file.write_bytes(b"old" * 2000)
    before = await save(room, store)
    with file.open("r+b") as stream, mmap.mmap(stream.fileno(), 0) as memory:
        memory[:3] = b"new"
    os.utime(file, ns=(0, before.files[0].modified_ns))
    after = await save(room, store, before)
    assert store.read(after.files[0], after.id) == b"new" + b"old" * 1999


async def test_a_snapshot_is_restored_in_another_place(room: Room, store: SnapshotStore, tmp_path: Path) -> None:
    (room.workspace / "d").mkdir(mode=0o750)
    (room.workspace / "d" / "f").write_bytes(os.urandom(200_000))
    (room.workspace / "link").symlink_to("/etc/passwd")
    saved, other = await save(room, store), Room(tmp_path / "other")
    async with other.converse() as conversation:
        await WorkspaceRestorer(conversation, store, other.artifacts).restore(saved)
    assert await save(other, store) == saved == await save(other, store, is_still=False)


@pytest.mark.parametrize("is_still", [True, False])
@pytest.mark.parametrize("content", [b"mine", b"", b"of another sandboy"])
async def test_a_content_of_another_sandbox_cannot_be_claimed(
    store: SnapshotStore, content: bytes, is_still: bool
) -> None:
    """It says that its file has the digest of a secret, whose content it does not have."""
    with store.writing() as writer:
        secret = writer.batch.add(b"of another sandbox")
        writer.commit(SnapshotManifest.of(()))
    claim = listing(entry(name="f", size=18, sha256=secret))
    receipt = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    answer = (encode({"data": True}, content) if content else b"") + encode({"done": receipt})
    async with talking_to(saying(claim, answer)) as conversation:
        with store.writing() as writer, pytest.raises(UsageError, match="'f' changed"):
            await WorkspaceSaver(conversation, writer, {}, Policy(), is_still=is_still).save()


@pytest.mark.parametrize("digest", ["../../x", "AB" * 32, "ab" * 31, 5, ["ab" * 32]])
async def test_a_digest_that_is_none_is_refused(store: SnapshotStore, digest: object) -> None:
    async with talking_to(saying(listing(entry(name="f", sha256=digest)))) as conversation:
        with store.writing() as writer, pytest.raises(FumehoodError, match="digest"):
            await WorkspaceSaver(conversation, writer, {}, Policy(), is_still=True).save()


async def test_a_content_that_is_longer_or_shorter_than_it_was_listed_is_an_error(store: SnapshotStore) -> None:
    for content in (b"12", b"1234"):
        answer = encode({"data": True}, content) + encode({"done": {"size": len(content)}})
        async with talking_to(saying(listing(entry(name="f", size=3)), answer)) as conversation:
            with store.writing() as writer, pytest.raises(FumehoodError, match=r"changed|more than was asked for"):
                await WorkspaceSaver(conversation, writer, {}, Policy(), is_still=True).save()
    assert list(store.blobs.digests()) == []


@pytest.mark.parametrize("is_still", [True, False])
async def test_holes_are_charged(room: Room, store: SnapshotStore, is_still: bool) -> None:
    for name in "ab":
        with (room.workspace / name).open("wb") as stream:
            stream.truncate(room.policy.workspace_bytes)
    with pytest.raises(UsageError, match="holes included"):
        await save(room, store, is_still=is_still)
    assert json.dumps(list(store.blobs.digests())) == "[]"
