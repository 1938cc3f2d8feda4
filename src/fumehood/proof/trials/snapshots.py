"""Trials of workspaces that are kept: archives that come in and go out, and the store they are kept in."""

from __future__ import annotations

import io
import tarfile

from fumehood.errors import UsageError
from fumehood.proof.laboratory import Laboratory, variables
from fumehood.proof.trial import BrokenError, Trial, attack, use
from fumehood.sandbox.archive import ArchiveError, ArchiveWriter, read_archive
from fumehood.snapshots import SnapshotManifest, SnapshotStore
from fumehood.snapshots.limits import VARIABLE as LIMITS_VARIABLE

_LINK, _HARD, _DEVICE = tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.BLKTYPE


def _entry(
    name: str, data: bytes = b"", *, kind: bytes = tarfile.REGTYPE, target: str = "", mode: int = 0o644
) -> bytes:
    """A member as it is in an archive, with its headers."""
    info = tarfile.TarInfo(name)
    info.size, info.type, info.linkname, info.mode = len(data), kind, target, mode
    return info.tobuf(tarfile.PAX_FORMAT) + data + bytes(-len(data) % tarfile.BLOCKSIZE)


_LEADING_OUT = {
    "a path upwards": _entry("../../etc/cron.d/x", b"1"),
    "a path upwards in the middle": _entry("a/../../x", b"1"),
    "an absolute path": _entry("/etc/cron.d/x", b"1"),
    "an absolute link": _entry("l", kind=_LINK, target="/etc/passwd"),
    "a link upwards": _entry("d/l", kind=_LINK, target="../../x"),
    "a file through a link": _entry("l", kind=_LINK, target="d") + _entry("l/x", b"1"),
    "a hard link": _entry("h", kind=_HARD, target="/etc/passwd"),
    "a device": _entry("sda", kind=_DEVICE),
    "a set-uid bit": _entry("su", b"1", mode=0o4755),
}
_FOLDERS = 98  # above each entry; an archive need not mention them


def _read(lab: Laboratory, archive: bytes, *, inodes: int | None = None) -> SnapshotManifest:
    policy = lab.policy.override({"resources": {"inodes": inodes}}) if inodes else lab.policy
    with _store(lab).writing() as writer:
        return read_archive(io.BufferedReader(io.BytesIO(archive + bytes(2 * tarfile.BLOCKSIZE))), writer, policy)


def _store(lab: Laboratory) -> SnapshotStore:
    return SnapshotStore(lab.folder / "archives")


@attack("snapshots", "Bring in archives with paths, links, devices and bits that lead out of the workspace.")
async def lead_out_by_an_archive(lab: Laboratory) -> str:
    for name, archive in _LEADING_OUT.items():
        _require_refusal(lab, name, archive)
    return f"refused: {', '.join(_LEADING_OUT)}"


@attack("snapshots", "Bring in archives with more folders and headers than their entries account for.")
async def exhaust_by_an_archive(lab: Laboratory) -> str:
    folders = b"".join(_entry("/".join([str(number), *"b" * _FOLDERS])) for number in range(12))
    _require_refusal(lab, "folders that it only implies", folders, inodes=1000)
    _require_refusal(lab, "entries without a name", _entry("./.") * 4000)
    return "refused: folders that it only implies, entries without a name"


def _require_refusal(lab: Laboratory, name: str, archive: bytes, *, inodes: int | None = None) -> None:
    try:
        _read(lab, archive, inodes=inodes)
    except ArchiveError:
        return
    raise BrokenError(f"an archive with {name} was taken")


@attack("snapshots", "Save more small files than the store may hold.")
async def outgrow_the_store(lab: Laboratory) -> str:
    with variables({LIMITS_VARIABLE: "size=1M"}):
        async with lab.sandbox() as box:
            made = await box.run("for i in range(300): open(str(i), 'w').write(f'{i}')\nprint('made')")
            if made.stdout != "made\n":
                raise BrokenError(f"the files were not made: {made.detail or made.stderr[-200:]}")
            try:
                await box.snapshot()
            except UsageError as error:
                return f"with 1M: {str(error)[:160]}"
    raise BrokenError("300 files that take 1.2M on a disk were kept in a store of 1M")


@attack("snapshots", "Plant links that lead out, for a person who unpacks an archive of the workspace.")
async def lead_out_by_an_export(lab: Laboratory) -> str:
    links = ("/etc/passwd", "../../../etc", "d/../../..", "/proc/self/fd/0")
    plant = f"import os\nos.makedirs('d/e')\nfor n, t in enumerate({links!r}): os.symlink(t, f'd/e/l{{n}}')\n"
    async with lab.sandbox() as box:
        await box.run(f"{plant}open('d/kept', 'w').write('1')")
        archive = _exported((await box.snapshot()).id)
    with tarfile.open(fileobj=archive) as entries:
        found = {info.name: info for info in entries}
    if "d/kept" not in found:
        raise BrokenError(f"the archive has {sorted(found)}, and not the file beside the links")
    if left := [name for name, info in found.items() if info.issym()]:
        raise BrokenError(f"links that lead out are in the archive: {', '.join(left)}")
    return f"{len(links)} links: none is in the archive"


def _exported(snapshot: str) -> io.BytesIO:
    store, target = SnapshotStore.open_default(), io.BytesIO()
    ArchiveWriter(store, store.manifest(snapshot), lambda path: True).write(target)
    target.seek(0)
    return target


@use("snapshots", "Keep a workspace, begin another sandbox with it, and bring in an archive.")
async def keep_a_workspace(lab: Laboratory) -> str:
    async with lab.sandbox() as box:
        await box.files.write("kept", "6 * 7")
        snapshot = await box.snapshot()
    async with lab.sandbox(snapshot=snapshot) as box:
        found = await box.run("print(open('kept').read())")
    if found.stdout != "6 * 7\n":
        raise BrokenError(f"the other sandbox found {found.stdout!r} {found.stderr[-200:]}")
    entries = [entry.path for entry in _read(lab, _entry("d/file", b"1")).entries]
    if entries != ["d", "d/file"]:
        raise BrokenError(f"the archive became {entries}")
    return "the file was there; an archive with a folder and a file was taken"


TRIALS: tuple[Trial, ...] = (
    lead_out_by_an_archive,
    exhaust_by_an_archive,
    outgrow_the_store,
    lead_out_by_an_export,
    keep_a_workspace,
)
