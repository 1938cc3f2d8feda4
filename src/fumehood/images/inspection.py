"""What images an engine has, and what is in them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from fumehood.backends.docker.engine import Engine, ImageFacts
from fumehood.backends.docker.errors import EngineError, speaking_to
from fumehood.backends.docker.labels import split_digest
from fumehood.errors import UsageError
from fumehood.images import dpkg
from fumehood.images.build_dir import open_build_dir
from fumehood.images.engine_calls import export_root, with_engine
from fumehood.images.inventory import MADE, PLACE, bill_of_materials, take_stock
from fumehood.images.root import open_root
from fumehood.policy import Policy

_CONFLICT = 409

Heartbeat = Callable[[], None]


def _carry_on() -> None:
    """Nothing ends the work but its end."""


@dataclass(frozen=True, slots=True)
class ImageEntry:
    """An image, and the bill of its materials."""

    facts: ImageFacts
    bill: dict[str, Any]

    def components(self, kind: str) -> list[tuple[str, str]]:
        """Names and versions of the `deb` or `pypi` ones."""
        listed = cast("list[dict[str, str]]", self.bill["components"])
        return [(each["name"], each["version"]) for each in listed if each["purl"].startswith(f"pkg:{kind}/")]


def inspect_image(policy: Policy, reference: str, heartbeat: Heartbeat = _carry_on) -> ImageEntry:
    """The entry of an image; one that was made elsewhere takes longer, since it has no list of components."""
    facts, bill = with_engine(policy, partial(_ask, reference), heartbeat)
    return ImageEntry(facts, bill or _take_apart(policy, facts, heartbeat))


async def _ask(reference: str, engine: Engine) -> tuple[ImageFacts, dict[str, Any] | None]:
    await engine.facts()
    facts = await engine.image(reference)
    return facts, await _own_bill(engine, facts) if MADE in facts.labels else None


async def _own_bill(engine: Engine, facts: ImageFacts) -> dict[str, Any] | None:
    """None where it is gone: an image can be built on another, and leave it out."""
    text = await engine.read_file(facts, f"/{PLACE}")
    return json.loads(text) if text else None


def _take_apart(policy: Policy, facts: ImageFacts, heartbeat: Heartbeat) -> dict[str, Any]:
    with open_build_dir() as build_dir:
        path = build_dir.folder / "root.tar"
        with_engine(policy, partial(export_root, image=facts, path=path), heartbeat)
        with open_root(path) as root:
            components = take_stock(root, root.entries, dpkg.installed(root))
    return bill_of_materials(facts.reference, components, made_at=facts.made_at, properties=facts.labels)


def list_images(policy: Policy) -> list[ImageFacts]:
    """The images that were made here, the newest first."""
    return with_engine(policy, _list, _carry_on)


async def _list(engine: Engine) -> list[ImageFacts]:
    await engine.facts()
    with speaking_to(engine.host):
        found: Any = await engine.client.images.list(filters={"label": [MADE]})
    images = [await engine.image(name) for image in found for name in _names(image)]
    return sorted(images, key=lambda image: image.made_at, reverse=True)


def _names(image: Any) -> list[str]:
    """One whose name another has taken is known by its digest."""
    return [name for name in image["RepoTags"] or () if name != "<none>:<none>"] or [image["Id"]]


def remove_image(policy: Policy, reference: str) -> ImageFacts:
    """One that was made here; others are not ours to remove."""
    return with_engine(policy, partial(_remove, reference), _carry_on)


async def _remove(reference: str, engine: Engine) -> ImageFacts:
    from aiodocker import DockerError

    await engine.facts()
    facts = await engine.image(reference)
    if MADE not in facts.labels:
        raise UsageError(f"image {reference!r} was not made by `hood image build`; `docker image rm` removes it")
    with speaking_to(engine.host):
        try:
            await engine.client.images.delete(split_digest(reference).name)
        except DockerError as error:
            if error.status != _CONFLICT:
                raise
            raise EngineError(
                f"image {reference!r} is in use, or another was made from it: {error.message}. Close the sandboxes "
                "that run in it (`hood gc` removes what dead ones left) and remove what is built on it first."
            ) from error
    return facts
