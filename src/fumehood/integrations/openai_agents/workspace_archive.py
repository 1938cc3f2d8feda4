"""The workspace of a session as one archive, packed and unpacked inside: none that a program made is read here."""

from __future__ import annotations

import io
import json
import secrets
from collections.abc import Iterable
from contextlib import suppress

import anyio

from fumehood.errors import FumehoodError, UsageError
from fumehood.policy.paths import TMP
from fumehood.sandbox.interface import AnySandbox
from fumehood.tools.source import apart

_PACK = """
import json, sys, tarfile
given = json.load(sys.stdin)
def wanted(member):
    name = member.name.removeprefix("./") + "/"
    is_plain = member.isfile() or member.isdir() or member.issym()
    return None if not is_plain or any(name.startswith(skip + "/") for skip in given["skip"]) else member
with tarfile.open(given["archive"], "w") as archive:
    archive.add(given["root"], arcname=".", filter=wanted)
"""
_UNPACK = """
import json, os, sys, tarfile
given = json.load(sys.stdin)
os.makedirs(given["root"], exist_ok=True)
options = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
with tarfile.open(given["archive"], "r:*") as archive:
    archive.extractall(given["root"], **options)
"""


async def pack(box: AnySandbox, root: str, skip: Iterable[str]) -> io.BytesIO:
    """Leaves as every file does: if `filesystem.outputs` of the policy names files of /tmp."""
    archive = _place()
    try:
        await _run(box, _PACK, {"archive": archive, "root": root, "skip": sorted(skip)})
        return io.BytesIO(await box.files.read(archive, max_bytes=box.policy.resources.disk))
    finally:
        await _remove(box, archive)


async def unpack(box: AnySandbox, root: str, data: bytes) -> None:
    archive = _place()
    try:
        await box.files.write(archive, data)
        await _run(box, _UNPACK, {"archive": archive, "root": root})
    finally:
        await _remove(box, archive)


def _place() -> str:
    return f"{TMP}/workspace-{secrets.token_hex(8)}.tar"


async def _run(box: AnySandbox, program: str, given: dict[str, object]) -> None:
    result = await box.run(apart(program), stdin=json.dumps(given))
    if not result.ok:
        raise UsageError(f"the archive of the workspace could not be made or used: {result.detail or result.stderr}")


async def _remove(box: AnySandbox, path: str) -> None:
    with anyio.CancelScope(shield=True), suppress(FumehoodError):
        await box.files.remove(path)
