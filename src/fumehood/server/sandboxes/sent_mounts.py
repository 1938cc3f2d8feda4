"""Folders that clients send along with a policy that mounts files of theirs: each for one sandbox of the one who sent.

They are unpacked into a folder of the server's own, which no program can write to, and mounted from there. One that no
sandbox is opened with is removed after a while, and each ends with its sandbox.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from fumehood.errors import QuotaError, UsageError
from fumehood.frozen import frozen
from fumehood.guest.contract import frames
from fumehood.guest.contract.frames import FrameError, Header
from fumehood.host.folders import remove_folder
from fumehood.policy import Policy, format_size
from fumehood.remote.mounts import MOST_ENTRIES
from fumehood.sandbox.files.paths import stays_inside
from fumehood.server.identity.principals import Principal
from fumehood.snapshots.manifest import EntryError, check_path

_UNUSED_SECONDS = 60.0
_CONTENT = "content"
_ENTRY_BYTES = 4096
_FILE, _FOLDER = 0o644, 0o755


@frozen
class SentMount:
    tenant: str
    principal: str
    folder: Path
    size: int
    """Of its files, and something for each of them."""
    sent: float
    files: int

    @property
    def source(self) -> str:
        return str(self.folder / _CONTENT)


class SentMounts:
    """`state` is the server's folder; what other servers of it have is below names of theirs."""

    def __init__(self, state: Path, instance: str, most_bytes: int) -> None:
        self._all, self._own, self._most_bytes = state / "mounts", state / "mounts" / instance, most_bytes
        self._waiting: dict[str, SentMount] = {}
        self._used: dict[str, SentMount] = {}

    def remove_left(self, alive: Collection[str]) -> None:
        """What servers that are gone have left. Blocks."""
        if self._all.exists():
            for folder in self._all.iterdir():
                if folder.name not in alive:
                    remove_folder(folder)

    async def keep(self, principal: Principal, packed: bytes) -> tuple[str, SentMount]:
        """A name by which the same principal can open one sandbox. UsageError for what is not a pack; QuotaError."""
        held = sum(each.size for each in self._of(principal.tenant))
        if held + len(packed) > self._most_bytes:
            raise QuotaError(
                f"files that were sent along to be mounted have {format_size(self._most_bytes)} for all sandboxes of "
                "the tenant; close some of those",
                quota="mounts_of_tenant",
                most=self._most_bytes,
                used=held,
                resets=None,
            )
        name = f"mnt_{secrets.token_hex(10)}"
        folder = self._own / principal.tenant / name
        # Counted before it is there: several may come at once.
        self._waiting[name] = SentMount(principal.tenant, principal.name, folder, len(packed), time.monotonic(), 0)
        try:
            files = await asyncio.to_thread(_unpack, packed, folder)
        except BaseException:
            await self._remove([self._waiting.pop(name)])
            raise
        size = len(packed) + files * _ENTRY_BYTES
        mount = SentMount(principal.tenant, principal.name, folder, size, time.monotonic(), files)
        self._waiting[name] = mount
        return name, mount

    def take(self, principal: Principal, names: Mapping[str, str]) -> dict[str, SentMount]:
        """By target. UsageError for one that is not there, is another's, or was used; then none is taken."""
        found = {target: self._waiting.get(name) for target, name in names.items()}
        owner = (principal.tenant, principal.name)
        is_theirs = all(each and each.files and (each.tenant, each.principal) == owner for each in found.values())
        if not is_theirs or len(set(names.values())) != len(names):
            raise UsageError("the files to be mounted were not sent, or were used already; open the sandbox again")
        self._used |= {name: self._waiting.pop(name) for name in names.values()}
        return {target: mount for target, mount in found.items() if mount is not None}

    async def release(self, names: Iterable[str]) -> None:
        """Their sandbox has ended."""
        await self._remove([mount for name in names if (mount := self._used.pop(name, None))])

    async def release_old(self) -> None:
        limit = time.monotonic() - _UNUSED_SECONDS
        old = [name for name, mount in self._waiting.items() if mount.sent < limit]
        await self._remove([self._waiting.pop(name) for name in old])

    async def close(self) -> None:
        await asyncio.to_thread(remove_folder, self._own)

    def _of(self, tenant: str) -> list[SentMount]:
        return [each for each in (*self._waiting.values(), *self._used.values()) if each.tenant == tenant]

    async def _remove(self, mounts: list[SentMount]) -> None:
        for mount in mounts:
            await asyncio.shield(asyncio.to_thread(remove_folder, mount.folder))


def mounted_from(policy: Policy, sources: Mapping[str, str]) -> Policy:
    """The policy with other sources, by target."""
    mounts = [mount.model_copy(update={"source": sources[mount.target]}) for mount in policy.filesystem.mounts]
    return policy.override({"filesystem": {"mounts": [mount.model_dump() for mount in mounts]}})


def _unpack(packed: bytes, folder: Path) -> int:
    """How many entries. Links are made when everything else is there, so that nothing is written through one."""
    folder.mkdir(mode=0o700, parents=True)
    decoder = frames.Decoder(len(packed))
    decoder.feed(packed)
    links: list[tuple[str, str]] = []
    count = 0
    try:
        while (message := decoder.next()) is not None and "end" not in message[0]:
            count += 1
            if count > MOST_ENTRIES:
                raise UsageError(f"files to be mounted: more than {MOST_ENTRIES}")
            _unpack_entry(folder / _CONTENT, *message, links)
        if message is None or not count:
            raise FrameError("they are not whole")
        for path, target in links:
            os.symlink(target, folder / _CONTENT / path)
    except OSError as error:  # whose own words name folders of the server
        raise UsageError(f"files to be mounted: an entry cannot be made: {error.strerror}") from None
    except (FrameError, EntryError) as error:
        raise UsageError(f"files to be mounted: {error}") from None
    return count


def _unpack_entry(top: Path, header: Header, content: bytes, links: list[tuple[str, str]]) -> None:
    path, kind = header.get("path"), header.get("kind")
    if not isinstance(path, str):
        raise FrameError("an entry without a path")
    if path:
        check_path(path)
    place = top / path
    match kind:
        case "folder":
            place.mkdir(mode=_FOLDER)
            place.chmod(_FOLDER)
        case "file":
            place.touch(mode=0o600, exist_ok=False)
            place.write_bytes(content)
            place.chmod(_FOLDER if header.get("executable") else _FILE)
        case "link":
            target = header.get("target")
            if not path or not isinstance(target, str) or not stays_inside(path, target):
                raise EntryError(path, "it is a link that leads out")
            links.append((path, target))
        case _:
            raise EntryError(path, "it is neither a file nor a folder nor a link")
