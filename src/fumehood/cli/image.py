"""`hood image build | list | inspect | remove`: images for the container backends, on the engine of a policy."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict

from fumehood.backends.docker.engine import ImageFacts
from fumehood.backends.docker.labels import image_of
from fumehood.characters import neutralise
from fumehood.cli import exitcodes
from fumehood.cli.arguments import Parser
from fumehood.cli.interruption import Interruption, StoppedBySignalError
from fumehood.cli.output import BOLD, paint, say
from fumehood.images import ImageEntry, Recipe, build_image, inspect_image, inventory, list_images, remove_image
from fumehood.policy import Policy, read_policy
from fumehood.sandbox.async_sandbox import sandboxed_installer

_MIB = 1024 * 1024
_BUILD = """\
The image has python3, a user of its own, the policy's packages, and what the
languages need; no package managers, no programs that fetch things, no other
compilers, no set-uid files. Without --base it is made from Debian packages,
with mmdebstrap. With SOURCE_DATE_EPOCH set, equal content has an equal digest.
"""


class Arguments(argparse.Namespace):
    act: Callable[[Arguments], int]
    policy: str | None
    name: str | None
    base: str | None
    suite: str | None
    mirror: str | None
    language: list[str]
    json: bool
    vm: bool


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="hood image", description="Images for the backends docker and gvisor.")
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    build = verbs.add_parser(
        "build",
        help="make a hardened image",
        description="Make a hardened image on the policy's engine.",
        epilog=_BUILD,
    )
    build.add_argument("--policy", metavar="FILE", help="whose packages it is to have, and whose engine gets it")
    build.add_argument("--name", metavar="NAME", help="default: the policy's image, else fumehood:latest")
    build.add_argument("--base", metavar="IMAGE", help="start from an image, such as python:3.12-slim")
    build.add_argument("--suite", metavar="NAME", help="start from Debian packages of this release (default: bookworm)")
    build.add_argument("--mirror", metavar="URL", help="where to get Debian packages")
    build.add_argument(
        "--language", metavar="NAME", action="append", default=[], help="besides python and sh; repeatable"
    )
    build.add_argument("--vm", action="store_true", help="an image for the backend microvm, without any engine")
    build.set_defaults(act=_build)
    listing = verbs.add_parser("list", help="what was built", description="Images that were built, newest first.")
    listing.set_defaults(act=_list)
    inspect = verbs.add_parser(
        "inspect", help="what is in an image", description="What is in an image: packages, versions, origin, digest."
    )
    inspect.set_defaults(act=_inspect)
    remove = verbs.add_parser("remove", help="remove an image", description="Remove an image that was built.")
    remove.set_defaults(act=_remove)
    remove.add_argument("name", metavar="NAME")
    inspect.add_argument("name", metavar="NAME", nargs="?", help="default: the policy's image, else fumehood:latest")
    for verb in (listing, inspect, remove):
        verb.add_argument("--policy", metavar="FILE", help="whose engine is asked")
    for verb, what in ((listing, "it as JSON"), (inspect, "a bill of materials as JSON (CycloneDX)")):
        verb.add_argument("--json", action="store_true", help=f"print {what}")
    return parser


def execute(arguments: list[str]) -> int:
    chosen = build_parser().parse_args(arguments, namespace=Arguments())
    return chosen.act(chosen)


def _policy(chosen: Arguments) -> Policy:
    return Policy() if chosen.policy is None else read_policy(chosen.policy, "--policy")


def _build(chosen: Arguments) -> int:
    recipe = Recipe.of(
        _policy(chosen),
        name=chosen.name,
        base=chosen.base,
        suite=chosen.suite,
        mirror=chosen.mirror,
        languages=tuple(chosen.language),
    )
    interruption = Interruption()
    try:
        if chosen.vm:
            return _build_for_machines(recipe, interruption)
        built = build_image(recipe, sandboxed_installer(), say, interruption.check)
    except StoppedBySignalError as error:
        say(f"{error}; nothing is left of it")
        return exitcodes.for_signal(error.signal)
    print(_in_words(built))
    print(f"to pin it, write into a policy:\n  image: {built.reference}@{built.digest}")
    return 0


def _build_for_machines(recipe: Recipe, interruption: Interruption) -> int:
    from fumehood.backends.microvm.backend import examine
    from fumehood.images.machine import build_machine_image

    built = build_machine_image(recipe, sandboxed_installer(), say, interruption.check)
    size = built.size_bytes
    name = paint(neutralise(built.name), BOLD)
    print(f"{name}  {built.digest} ({size / _MIB:.1f} MiB, kernel {built.release}, for backend: microvm)")
    say("booting a machine, of which sandboxes are copies: none of them has to wait for it")
    memory = {"memory": recipe.policy.resources.memory}
    works, detail = examine(Policy(backend="microvm", image=built.name, resources=memory))
    say(detail if works else f"the image is there, but no machine runs on this host: {detail}")
    return 0


def _list(chosen: Arguments) -> int:
    found = list_images(_policy(chosen))
    if chosen.json:
        print(json.dumps([asdict(image) for image in found]))
        return 0
    for image in found:
        print(_in_words(image))
    if not found:
        print("no images; `hood image build` makes one")
    return 0


def _inspect(chosen: Arguments) -> int:
    policy, interruption = _policy(chosen), Interruption()
    try:
        entry = inspect_image(policy, chosen.name or image_of(policy), interruption.check)
    except StoppedBySignalError as error:
        say(str(error))
        return exitcodes.for_signal(error.signal)
    if chosen.json:
        print(json.dumps(_with_digest(entry)))
        return 0
    for line in _details(entry):
        print(line)
    return 0


def _with_digest(entry: ImageEntry) -> dict[str, object]:
    """The list inside an image cannot name the image's own digest."""
    metadata = entry.bill["metadata"]
    component = {**metadata["component"], "version": entry.facts.digest}
    return {**entry.bill, "metadata": {**metadata, "component": component}}


def _details(entry: ImageEntry) -> Iterator[str]:
    facts, written = entry.facts, entry.facts.labels
    rows = {
        "name": facts.reference,
        "digest": facts.digest,
        "size": f"{facts.size_bytes / _MIB:.1f} MiB",
        "machine": facts.machine,
        "user": facts.user or "root",
        "built": facts.made_at,
        "from": written.get(inventory.FROM, "unknown: not made by `hood image build`"),
        "policy": written.get(inventory.POLICY, "none"),
        "environment": written.get(inventory.PACKAGES, "none"),
        "languages": written.get(inventory.LANGUAGES, "unknown"),
    }
    for key, value in rows.items():
        yield f"{paint(f'{key:12}', BOLD)} {neutralise(value)}"
    for title, kind in (("Python packages", "pypi"), ("Debian packages", "deb")):
        found = entry.components(kind)
        yield f"{paint(title, BOLD)} ({len(found)})"
        yield from (f"  {neutralise(f'{name} {version}')}" for name, version in found)


def _remove(chosen: Arguments) -> int:
    assert chosen.name is not None
    removed = remove_image(_policy(chosen), chosen.name)
    print(f"removed {_in_words(removed)}")
    return 0


def _in_words(image: ImageFacts) -> str:
    origin = image.labels.get(inventory.FROM, "unknown")
    facts = f"{image.size_bytes / _MIB:.1f} MiB, from {origin}, built {image.made_at[:10]}"
    return f"{paint(neutralise(image.reference), BOLD)}  {image.digest} ({neutralise(facts)})"
