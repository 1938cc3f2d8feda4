"""A Python for containers whose image has none: the guest runs on it, and programs never see it.

It comes out of another image of the engine's, into a volume: a container that is made with an empty volume over /usr,
and never started, makes the engine itself copy that folder. So it works with an engine elsewhere, and with images that
have another C library or none at all: the volume's own loader starts the volume's own interpreter. Once for each image
that Python is taken from; all sandboxes share it, read-only, until `hood gc` finds it unused.
"""

from __future__ import annotations

import base64
import json
import secrets
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import anyio

from fumehood.backends.docker.engine import Engine, ImageFacts
from fumehood.backends.docker.errors import EngineError, ImageMissingError, speaking_to

PLACE = "/.fumehood"
"""In a container: nothing of the image's is called like that."""
LABEL = "fumehood.python"
"""On volumes: the digest of the image that the interpreter is from."""
_VOLUME, _PYTHON, _LOADER = "fumehood.python.volume", "fumehood.python.program", "fumehood.python.loader"
_TAKEN = "/usr"
_PYTHONS = ("/usr/local/bin/python3", "/usr/bin/python3")
# What every dynamic program of the machine names as its loader.
_LOADERS = {"x86_64": "/lib64/ld-linux-x86-64.so.2", "aarch64": "/lib/ld-linux-aarch64.so.1"}


@dataclass(frozen=True, slots=True)
class LentInterpreter:
    volume: str
    digest: str
    """The digest of the image that it is from."""
    program: str
    loader: str
    """Paths in that image."""

    @property
    def command(self) -> tuple[str, ...]:
        """Every word that comes before the interpreter's own options. Nothing of the image's is loaded."""
        around = self.loader.rpartition("/")[0]
        folders = dict.fromkeys((around, f"{_TAKEN}/local/lib", f"{_TAKEN}/lib", f"{_TAKEN}/lib64"))
        libraries = ":".join(PLACE + folder for folder in folders)
        return (PLACE + self.loader, "--inhibit-cache", "--library-path", libraries, PLACE + self.program)

    @property
    def mount(self) -> dict[str, Any]:
        # The label is for a volume that is gone by now: an engine makes an empty one in its place.
        options = {"NoCopy": True, "Labels": {LABEL: self.digest}}
        target = PLACE + _TAKEN
        return {"Type": "volume", "Source": self.volume, "Target": target, "ReadOnly": True, "VolumeOptions": options}


async def lend_interpreter(engine: Engine, borrower: ImageFacts, lender: str) -> LentInterpreter:
    """The interpreter's volume, made if there is none; callers at the same time use the same one."""
    try:
        image = await engine.image(lender)
    except ImageMissingError as error:
        raise _explained(borrower, f"image {lender!r}, whose Python it could use, is not there") from error
    if image.digest == borrower.digest or image.machine != borrower.machine:
        raise _explained(borrower, f"image {lender!r} is not one that it could take it from")
    with speaking_to(engine.host):
        return await _known(engine, image) or await _taken(engine, image, borrower)


async def forget_interpreter(engine: Engine, lent: LentInterpreter) -> None:
    """Removes an interpreter's note, and the empty volume that the engine made in place of a removed one."""
    with speaking_to(engine.host):
        await _is_removed(engine, lent.volume)
        await _is_removed(engine, _note_name(lent.digest))


async def remove_unused(engine: Engine) -> list[str]:
    """Names of the volumes that were removed; the engine keeps those that a container uses."""
    found: Any = await engine.client.volumes.list(filters={"label": [LABEL]})
    volumes = {volume["Name"]: volume["Labels"] for volume in found["Volumes"] or ()}
    removed: list[str] = []
    # Those that hold an interpreter first: the note that names one must not go while that one stays.
    for name in sorted(volumes, key=lambda name: _VOLUME in volumes[name]):
        if volumes[name].get(_VOLUME) not in volumes.keys() - removed and await _is_removed(engine, name):
            removed.append(name)
    return removed


async def _known(engine: Engine, image: ImageFacts) -> LentInterpreter | None:
    note = await _labels(engine, _note_name(image.digest))
    if note is None:
        return None
    if await _labels(engine, note[_VOLUME]) is None:
        # The volume was removed, and its note was left.
        await _is_removed(engine, _note_name(image.digest))
        return None
    return LentInterpreter(note[_VOLUME], image.digest, note[_PYTHON], note[_LOADER])


async def _taken(engine: Engine, image: ImageFacts, borrower: ImageFacts) -> LentInterpreter:
    """An empty volume is a note that says which one is complete, on its labels. The engine lets one note be first."""
    volume = f"{_note_name(image.digest)}-{secrets.token_hex(4)}"
    options = {"Labels": {LABEL: image.digest}}
    mount = {"Type": "volume", "Source": volume, "Target": _TAKEN, "VolumeOptions": options}
    try:
        # As long as a container has the volume, the engine does not remove it.
        async with engine.unstarted_container(image, mount) as container:
            program = await _first_of(engine, container, _PYTHONS)
            loader = await _first_of(engine, container, (_LOADERS.get(image.machine, "/"),))
            if program is None or loader is None:
                raise _explained(borrower, f"image {image.reference!r} has no Python and GNU C library in {_TAKEN}")
            labels = {LABEL: image.digest, _VOLUME: volume, _PYTHON: program, _LOADER: loader}
            await engine.client.volumes.create({"Name": _note_name(image.digest), "Labels": labels})
            lent = await _known(engine, image)
        if lent is None:
            raise EngineError(f"the interpreter for image {borrower.reference!r} was removed at once; try again.")
        if lent.volume != volume:
            await _is_removed(engine, volume)
    except BaseException:
        with anyio.CancelScope(shield=True):
            await _is_removed(engine, volume)
        raise
    return lent


async def _first_of(engine: Engine, container: str, paths: tuple[str, ...]) -> str | None:
    """Where the first of them that is there leads to, inside of what is taken."""
    from aiodocker import DockerError

    for path in paths:
        # The client library has no name for this call, and does not expect errors without a text.
        with suppress(DockerError, ValueError):
            query = engine.client._query(f"containers/{container}/archive", "HEAD", params={"path": path})
            async with query as response:
                details = json.loads(base64.b64decode(response.headers["X-Docker-Container-Path-Stat"]))
            place = details["linkTarget"] or path
            if place.startswith(_TAKEN + "/"):
                return place
    return None


async def _labels(engine: Engine, volume: str) -> dict[str, str] | None:
    from aiodocker import DockerError

    try:
        details: Any = await (await engine.client.volumes.get(volume)).show()
    except DockerError as error:
        if error.status != 404:
            raise
        return None
    return details["Labels"] or {}


async def _is_removed(engine: Engine, volume: str) -> bool:
    """Removes a volume. False while a container uses it, or when it is gone already."""
    from aiodocker import DockerError

    try:
        await (await engine.client.volumes.get(volume)).delete()
    except DockerError as error:
        if error.status not in (404, 409):
            raise
        return False
    return True


def _note_name(digest: str) -> str:
    return f"fumehood-python-{digest.rpartition(':')[2][:24]}"


def _explained(borrower: ImageFacts, reason: str) -> EngineError:
    return EngineError(
        f"image {borrower.reference!r} has no python3, which the guest needs, and {reason}. Make one with `hood image "
        "build`, or name an image with Python as docker.interpreter in the policy."
    )
