"""The walk of a build: a root file system, what stays of it, packages, a user, a list of all that, an image."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import MappingProxyType

from fumehood.backends.docker.engine import Engine, ImageFacts
from fumehood.backends.docker.errors import speaking_to
from fumehood.backends.docker.labels import ENVIRONMENT
from fumehood.backends.languages import LANGUAGES
from fumehood.environments import EnvironmentSpec, EnvironmentStore, InstalledEnvironment, InstallRunner, Target
from fumehood.errors import UsageError
from fumehood.host.interpreter import PACKAGES_PLACE
from fumehood.images import debian, inventory
from fumehood.images.archive import Configuration, ImageArchive, Layer, image_configuration
from fumehood.images.build_dir import BuildDir, open_build_dir
from fumehood.images.content_filter import NOTHING, FilteredContent, filter_content
from fumehood.images.dpkg import wheel_platform
from fumehood.images.engine_calls import export_root, fetch_base, with_engine
from fumehood.images.inventory import (
    FROM,
    MADE,
    MADE_AT,
    PACKAGES,
    PLACE,
    POLICY,
    PYTHON,
    Component,
    bill_of_materials,
    take_stock,
)
from fumehood.images.recipe import Recipe
from fumehood.images.root import Root, add_account, open_root

Progress = Callable[[str], None]
Heartbeat = Callable[[], None]
_PATH = "/usr/local/bin:/usr/bin:/bin"


def ignore(line: str) -> None:
    """Discards a line of progress."""


def carry_on() -> None:
    """Nothing ends the work but its end."""


@dataclass(frozen=True, slots=True)
class RootSource:
    """Where a root file system comes from, and for which machine it is."""

    archive: Path
    machine: str
    origin: str


def build_image(
    recipe: Recipe, runner: InstallRunner, progress: Progress = ignore, heartbeat: Heartbeat = carry_on
) -> ImageFacts:
    """Blocks, for command lines. Whatever `heartbeat` raises ends it, and nothing is left.

    The runner installs the policy's packages.
    """
    made_at = _moment(os.environ)
    machine = with_engine(recipe.policy, _machine, heartbeat)
    with open_build_dir() as build_dir, ExitStack() as stack:
        source = _fetch(recipe, machine, build_dir, made_at, progress, heartbeat)
        root = stack.enter_context(open_root(source.archive))
        environment = _install_packages(recipe, root, source.machine, stack, runner, progress, heartbeat)
        progress("hardening")
        archive = _assemble(recipe, source, root, environment, build_dir.folder / "layer.tar", made_at, heartbeat)
        progress(f"loading {recipe.name}, {archive.layer.stat().st_size // 2**20} MiB")
        return with_engine(recipe.policy, partial(_load, archive=archive), heartbeat)


@dataclass(frozen=True, slots=True)
class MadeLayer:
    """What is known of a root file system that was written as one layer."""

    made_at: int
    user: tuple[int, int]
    python_path: str
    python: tuple[int, int]
    has_packages: bool


def make_layer(
    recipe: Recipe,
    machine: str,
    build_dir: BuildDir,
    path: Path,
    runner: InstallRunner,
    progress: Progress,
    heartbeat: Heartbeat,
    folders: tuple[str, ...] = (),
    files: Mapping[str, bytes] = MappingProxyType({}),
) -> MadeLayer:
    """A hardened root file system from Debian packages, without any engine; `folders` and `files` come on top."""
    made_at = _moment(os.environ)
    with ExitStack() as stack:
        source = _fetch(recipe, machine, build_dir, made_at, progress, heartbeat)
        root = stack.enter_context(open_root(source.archive))
        environment = _install_packages(recipe, root, source.machine, stack, runner, progress, heartbeat)
        progress("hardening")
        _assemble(recipe, source, root, environment, path, made_at, heartbeat, folders, files)
        python, number = root.python(), add_account(root).number
        assert python is not None
        return MadeLayer(made_at, (number, number), *python, environment is not None)


def _moment(variables: Mapping[str, str]) -> int:
    """The time of a reproducible build, from SOURCE_DATE_EPOCH, else now."""
    said = variables.get("SOURCE_DATE_EPOCH")
    if said is None:
        return int(time.time())
    if not said.isdigit():
        raise UsageError(f"SOURCE_DATE_EPOCH {said!r} must be a number of seconds since 1970")
    return int(said)


async def _machine(engine: Engine) -> str:
    return (await engine.facts()).machine


def _fetch(
    recipe: Recipe, machine: str, build_dir: BuildDir, made_at: int, progress: Progress, heartbeat: Heartbeat
) -> RootSource:
    if recipe.base is None:
        draft = debian.make_root(recipe, machine, build_dir, made_at=made_at, progress=progress, heartbeat=heartbeat)
        return RootSource(draft, machine, f"Debian {recipe.suite}")
    draft = build_dir.folder / "root.tar"
    base = with_engine(recipe.policy, partial(_export, recipe.base, draft, progress), heartbeat)
    return RootSource(draft, base.machine, f"{recipe.base} ({base.digest})")


async def _export(reference: str, path: Path, progress: Progress, engine: Engine) -> ImageFacts:
    await engine.facts()
    image = await fetch_base(engine, reference, progress)
    progress(f"taking {reference} apart")
    await export_root(engine, image, path)
    return image


def _install_packages(
    recipe: Recipe,
    root: Root,
    machine: str,
    stack: ExitStack,
    runner: InstallRunner,
    progress: Progress,
    heartbeat: Heartbeat,
) -> InstalledEnvironment | None:
    python = root.python()
    if python is None:
        raise UsageError(f"{recipe.base or recipe.suite} has no python3, which sandboxes need; use one that has")
    section = recipe.policy.environment
    if not section.has_packages:
        return None
    spec = EnvironmentSpec.of(section, Target(python[1], wheel_platform(root, machine)))
    lease = stack.enter_context(closing(EnvironmentStore.open_default(runner).use(spec, progress, heartbeat)))
    return lease.environment


def _assemble(
    recipe: Recipe,
    source: RootSource,
    root: Root,
    environment: InstalledEnvironment | None,
    path: Path,
    made_at: int,
    heartbeat: Heartbeat,
    folders: tuple[str, ...] = (),
    files: Mapping[str, bytes] = MappingProxyType({}),
) -> ImageArchive:
    content = filter_content(root, recipe.languages, debian.SCAFFOLDING if recipe.base is None else NOTHING)
    _check_languages(recipe, root, content)
    account, labels = add_account(root), _labels(recipe, source, root, environment, made_at)
    layer = Layer(made_at)
    layer.add_root(root, content.kept)
    for name, text in {**content.changed, **account.files, **files}.items():
        layer.add_file(name, text, 0o644)
    for folder in ("workspace", "tmp", "run", "dev", "proc", "sys", *folders):
        layer.add_folder(folder, 0o1777 if folder == "tmp" else 0o755)
    if environment:
        _add_packages(layer, environment, root)
    bill = bill_of_materials(
        recipe.name, _components(root, content, environment), made_at=labels[MADE_AT], properties=labels
    )
    layer.add_file(PLACE, json.dumps(bill, indent=1).encode())
    digest = layer.write(path, heartbeat)
    variables = {"PATH": _PATH, **({"PYTHONPATH": PACKAGES_PLACE} if environment else {})}
    wanted = Configuration(source.machine, account.user, variables, labels, made_at)
    return ImageArchive(recipe.name, image_configuration(wanted, digest), path)


def _check_languages(recipe: Recipe, root: Root, content: FilteredContent) -> None:
    kept = set(content.kept)
    for name in recipe.languages:
        missing = [command for command in LANGUAGES[name].commands if not root.find_command(command, kept)]
        if missing:
            raise UsageError(
                f"language {name}: {recipe.base or recipe.suite} has no {' and no '.join(missing)}; use a --base that "
                "has, or leave --base away"
            )


def _labels(
    recipe: Recipe, source: RootSource, root: Root, environment: InstalledEnvironment | None, made_at: int
) -> dict[str, str]:
    python = root.python()
    assert python is not None
    section = recipe.policy.environment
    packages = {ENVIRONMENT: EnvironmentSpec.of(section).request, PACKAGES: environment.digest} if environment else {}
    return {
        MADE: "1",
        MADE_AT: datetime.fromtimestamp(made_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        FROM: source.origin,
        POLICY: recipe.policy.digest,
        PYTHON: ".".join(map(str, python[1])),
        inventory.LANGUAGES: " ".join(("python", "sh", *recipe.languages)),
        **packages,
    }


def _add_packages(layer: Layer, environment: InstalledEnvironment, root: Root) -> None:
    """Their programs name the interpreter that they were installed with, which is another one's path in here."""
    python = root.python()
    assert python is not None
    ours, theirs = environment.manifest.interpreter.encode(), python[0].encode()
    layer.add_tree(PACKAGES_PLACE.lstrip("/"), environment.folder, lambda content: content.replace(ours, theirs, 1))


def _components(root: Root, content: FilteredContent, environment: InstalledEnvironment | None) -> list[Component]:
    installed = environment.manifest.installed if environment else ()
    python = (Component("pypi", package.name, package.version) for package in installed)
    return sorted({*take_stock(root, content.kept, content.packages), *python})


async def _load(engine: Engine, archive: ImageArchive) -> ImageFacts:
    with speaking_to(engine.host):
        await engine.client.images.import_image(archive.chunks())
    return await engine.image(archive.name)
