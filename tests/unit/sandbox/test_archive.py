"""A tar becomes a snapshot only if every entry is plainly harmless; the one that is not is named."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fumehood.policy import Policy
from fumehood.sandbox.archive import ArchiveError, ArchiveWriter, read_archive
from fumehood.snapshots import SnapshotEntry, SnapshotManifest, SnapshotStore

POLICY = Policy(filesystem={"workspace": {"size": "1M"}}, resources={"inodes": 50})


@pytest.fixture
def store(tmp_path: Path) -> SnapshotStore:
    return SnapshotStore(tmp_path / "store")


def member(name: str, data: bytes = b"", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in fields.items():
        setattr(info, key, value)
    return info, data


def archive(*members: tuple[tarfile.TarInfo, bytes], mode: Any = "w", kind: int = tarfile.PAX_FORMAT) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode=mode, format=kind) as made:
        for info, data in members:
            made.addfile(info, io.BytesIO(data) if data else None)
    return target.getvalue()


def read(store: SnapshotStore, data: bytes) -> SnapshotManifest:
    with store.writing() as writer:
        manifest = read_archive(io.BufferedReader(io.BytesIO(data)), writer, POLICY)  # pyright: ignore[reportArgumentType]
        writer.commit(manifest)
    return manifest


LINK, HARD, FIFO, DEVICE, FOLDER = tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE
ATTACKS: dict[str, tuple[list[tuple[tarfile.TarInfo, bytes]], str]] = {
    "a path upwards": ([member("../x", b"1")], "'../x'"),
    "a path upwards in the middle": ([member("a/../../x", b"1")], "'a/../../x'"),
    "an absolute path": ([member("/etc/x", b"1")], "'/etc/x'.*absolute"),
    "an absolute path behind a dot": ([member(".//etc/../../x", b"1")], "x'"),
    "an absolute link": ([member("l", type=LINK, linkname="/etc/passwd")], "'l'.*leads out"),
    "a link upwards": ([member("d/l", type=LINK, linkname="../../x")], "'d/l'.*leads out"),
    "a file through a link": ([member("l", type=LINK, linkname="d"), member("l/x", b"1")], "'l/x'.*not a folder"),
    "a hard link to elsewhere": ([member("h", type=HARD, linkname="/etc/passwd")], "'h'.*hard link"),
    "a hard link to a link": (
        [member("l", type=LINK, linkname="d"), member("h", type=HARD, linkname="l")],
        "'h'.*hard link",
    ),
    "a device": ([member("dev", type=DEVICE)], "'dev'.*neither"),
    "a pipe": ([member("pipe", type=FIFO)], "'pipe'.*neither"),
    "an unknown kind": ([member("odd", type=b"Z")], "'odd'|neither"),
    "set-uid": ([member("su", b"1", mode=0o4755)], "'su'.*set-uid"),
    "set-gid on a folder": ([member("sg", type=FOLDER, mode=0o2755)], "'sg'.*set-uid"),
    "the same name twice": ([member("a", b"1"), member("./a", b"2")], "'a'.*twice"),
    "a file and a folder": ([member("a", b"1"), member("a/b", b"2")], "'a/b'.*not a folder"),
    "too many bytes": ([member("a", bytes(600_000)), member("b", bytes(600_000))], r"'b'.*workspace\.size"),
    "too many bytes by hard links": (
        [member("a", bytes(600_000)), member("b", type=HARD, linkname="a")],
        r"'b'.*workspace\.size",
    ),
    "too many entries": ([member(f"n{number}") for number in range(51)], r"'n50'.*resources\.inodes"),
    "a long name": ([member("x" * 256, b"1")], "255 bytes"),
    "a deep path": ([member("/".join("d" * 101), b"1")], "100 folders"),
    "a path of another header": ([member("a", b"1", pax_headers={"path": "../b"})], r"'\.\./b'"),
    "a sparse file": ([member("s", b"1", pax_headers={"GNU.sparse.realsize": "1"})], "sparse|damaged"),
    "a time that is none": ([member("t", b"1", pax_headers={"mtime": "nan"})], "'t'.*time|damaged"),
    "a NUL in a name": ([member("a", b"1", pax_headers={"path": "a\0b"})], "not a path"),
    "a time of a million digits": ([member("t", b"1", pax_headers={"mtime": "1E+999980"})], "'t'.*time"),
    "a time beyond all numbers": ([member("t", b"1", pax_headers={"mtime": "1E+999995"})], "'t'.*time"),
    "too many folders that it does not mention": ([member("/".join("d" * 60))], r"resources\.inodes"),
    "more folders than entries": ([member("a/b/" + "/".join("d" * n)) for n in range(1, 60)], r"resources\.inodes"),
    "a large file at the top": ([member(".", bytes(2_000_000))], "more headers"),
    "countless entries of the top": ([member("./.")] * 3000, "more headers"),
    "a huge header": ([member("a", b"1", pax_headers={"comment": "x" * 100_000})], "header of 1000"),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_archive_is_refused_that_has(store: SnapshotStore, attack: str) -> None:
    members, words = ATTACKS[attack]
    with pytest.raises(ArchiveError, match=words):
        read(store, archive(*members))
    assert list(store.blobs.digests()) == []
    assert list((store.root / "drafts").iterdir()) == []


@pytest.mark.parametrize("cut", [100, 700, -1500])
def test_an_archive_that_is_cut_off_or_none_is_refused(store: SnapshotStore, cut: int) -> None:
    whole = archive(member("a", bytes(5000)), kind=tarfile.USTAR_FORMAT)[:6144]
    with pytest.raises(ArchiveError, match=r"middle of it|damaged"):
        read(store, whole[:cut])
    with pytest.raises(ArchiveError):
        read(store, b"\x1f\x8b" + whole)


def test_a_bomb_is_charged_by_what_it_becomes(store: SnapshotStore) -> None:
    bomb = archive(member("zeros", bytes(50_000_000)), mode="w:gz")
    assert len(bomb) < 100_000
    with pytest.raises(ArchiveError, match=r"'zeros'.*workspace\.size"):
        read(store, bomb)


def test_what_is_written_is_read_as_it_was(store: SnapshotStore) -> None:
    with store.writing() as writer:
        digest = writer.batch.add(b"text")
        manifest = SnapshotManifest.of(
            [
                SnapshotEntry("d", "folder", 0o750, 1_600_000_000_000_000_001),
                SnapshotEntry("d/\udcff" + "n" * 150, "file", 0o641, 1_600_000_000_123_456_789, 4, digest),
                SnapshotEntry("zero", "file", 0, -5, 4, digest),
                SnapshotEntry("in", "link", target="d/x"),
                SnapshotEntry("out", "link", target="/etc/passwd"),
            ]
        )
        writer.commit(manifest)
    everything: Callable[[str], bool] = lambda path: True  # noqa: E731
    made, target = ArchiveWriter(store, manifest, everything), io.BytesIO()
    made.write(target)
    assert made.skipped == ["out"]
    again = read(store, target.getvalue())
    assert again.entries == tuple(entry for entry in manifest.entries if entry.path != "out")
