"""Archives that come in, workspaces that are kept, and archives that go out.

| attack | stopped by | succeeds without it (`ablation.py`) |
|---|---|---|
| an archive with paths that lead out | a path has plain names alone | `archive-paths` |
| ... with links that lead out | a link goes up only as far as the top, and then down | `archive-links` |
| ... with set-uid bits | such an entry is refused | `archive-set-uid` |
| ... with endless headers, or entries without a name | what is read is metered | `archive-metered` |
| ... with folders that it only implies | charged before they are kept | `archive-folders-charged` |
| ... with names that are too long together | charged, too | (takes minutes) |
| a workspace of small files, saved again and again | files are charged as the disk does | `store-charged` |
| links of a workspace to files of who unpacks its archive | left out | `export-links` |

The host's part is the same on every backend, so it is attacked on one.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fumehood import AsyncSandbox, Policy, UsageError
from fumehood.sandbox.archive import ArchiveError, ArchiveWriter, read_archive
from fumehood.snapshots import SnapshotManifest, SnapshotStore
from fumehood.snapshots.limits import StoreLimits

pytestmark = pytest.mark.anyio
POLICY, SMALL = Policy(backend="native"), Policy(backend="native", resources={"inodes": 1000})
LINK, HARD, DEVICE, PIPE = tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE


@pytest.fixture
def store(tmp_path: Path) -> SnapshotStore:
    return SnapshotStore(tmp_path / "store")


def entry(name: str, data: bytes = b"", **fields: object) -> bytes:
    """A member as it is in an archive, with its headers."""
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in fields.items():
        setattr(info, key, value)
    return info.tobuf(tarfile.PAX_FORMAT) + data + bytes(-len(data) % 512)


def read(store: SnapshotStore, archive: bytes, policy: Policy = POLICY) -> SnapshotManifest:
    with store.writing() as writer:
        stream = io.BufferedReader(io.BytesIO(archive + bytes(1024)))
        return read_archive(stream, writer, policy)  # pyright: ignore[reportArgumentType]


LEADING_OUT = {
    "a path upwards": entry("../../etc/cron.d/x", b"1"),
    "a path upwards in the middle": entry("a/../../x", b"1"),
    "an absolute path": entry("/etc/cron.d/x", b"1"),
    "an absolute link": entry("l", type=LINK, linkname="/etc/passwd"),
    "a link upwards": entry("d/l", type=LINK, linkname="../../x"),
    "a link upwards through another": entry("d/e/up", type=LINK, linkname="../../d")
    + entry("d/e/out", type=LINK, linkname="up/../../x"),
    "a file through a link": entry("l", type=LINK, linkname="d") + entry("l/x", b"1"),
    "a hard link": entry("h", type=HARD, linkname="/etc/passwd"),
    "a device": entry("sda", type=DEVICE, devmajor=8),
    "a pipe": entry("p", type=PIPE),
    "a set-uid bit": entry("su", b"1", mode=0o4755),
}


@pytest.mark.parametrize("attack", LEADING_OUT)
async def test_an_archive_does_not_lead_out_by(store: SnapshotStore, attack: str) -> None:
    with pytest.raises(ArchiveError):
        read(store, LEADING_OUT[attack])
    assert list(store.blobs.digests()) == []


def global_headers() -> Iterator[bytes]:
    for number in range(300):
        record = f" k{number:09}={'x' * 50_000}\n"
        yield entry("h", f"{len(record) + 5}{record}".encode(), type=tarfile.XGLTYPE)
        if number % 50 == 0:
            yield entry(f"f{number}")


def deep_names() -> Iterator[bytes]:
    """Each name is short enough; with each come 98 folders, whose paths are as long."""
    for number in range(500):
        yield entry("/".join([f"{number:030}", *["b" * 30] * 98]))


def deep_folders() -> Iterator[bytes]:
    for number in range(20):
        yield entry("/".join([str(number), *"b" * 98]))


EXHAUSTING = {
    "folders": lambda: b"".join(deep_folders()),
    "headers for all entries": lambda: b"".join(global_headers()),
    "names": lambda: b"".join(deep_names()),
    "entries of the top": lambda: entry("./.") * 4000,
    "a large file at the top": lambda: entry(".", bytes(4_000_000)),
}


@pytest.mark.parametrize("attack", EXHAUSTING)
async def test_an_archive_does_not_exhaust_the_host_by(store: SnapshotStore, attack: str) -> None:
    with pytest.raises(ArchiveError):
        read(store, EXHAUSTING[attack](), SMALL if attack == "folders" else POLICY)


async def save_again_and_again(box: AsyncSandbox) -> None:
    for number in range(4):
        code = f"for i in range(500): open(str(i), 'w').write(f'{number} {{i}}')"
        (await box.run(code)).check()
        await box.snapshot()


async def test_a_workspace_that_is_saved_again_and_again_does_not_outgrow_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUMEHOOD_SANDBOXES", str(tmp_path / "store"))
    monkeypatch.setenv("FUMEHOOD_SANDBOX_LIMITS", "size=4M")
    async with AsyncSandbox(POLICY) as box:
        with pytest.raises(UsageError, match="is the limit"):
            await save_again_and_again(box)
    store = SnapshotStore(tmp_path / "store", StoreLimits(size_bytes=4 * 1024**2))
    assert sum(path.stat().st_blocks * 512 for path in store.root.rglob("*") if path.is_file()) < 5 * 1024**2


async def test_an_archive_of_a_workspace_has_no_link_that_leads_out(
    store: SnapshotStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUMEHOOD_SANDBOXES", str(store.root))
    links = ["/etc/passwd", "../../../etc", "d/../../..", "x/../../../../x", "/proc/self/fd/0"]
    code = f"import os\nos.makedirs('d/e')\nfor n, t in enumerate({links}): os.symlink(t, f'd/e/l{{n}}')"
    async with AsyncSandbox(POLICY) as box:
        (await box.run(code)).check()
        made = await box.snapshot()
    target = io.BytesIO()
    ArchiveWriter(store, store.manifest(made.id), lambda path: True).write(target)
    target.seek(0)
    with tarfile.open(fileobj=target) as archive:
        assert [info.name for info in archive if info.issym()] == []
