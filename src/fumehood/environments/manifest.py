"""What is known of an installed environment, kept beside it as JSON: plain data, checked when it is read."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from fumehood.environments.spec import EnvironmentSpec

_FILE = "manifest.json"


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


class Package(_Record):
    name: str
    version: str


class Manifest(_Record):
    key: str
    content: str
    """`sha256:...` over every file: path, mode and bytes."""
    asked: tuple[str, ...]
    """The requested packages, with the requested hashes, which the installed packages have."""
    index: str | None
    interpreter: str
    tag: str
    installed: tuple[Package, ...]
    size_bytes: int
    built_at: str


def describe(spec: EnvironmentSpec, packages: Path, *, content: str, size_bytes: int, built_at: str) -> Manifest:
    return Manifest(
        key=spec.key,
        content=content,
        asked=spec.packages,
        index=spec.index,
        interpreter=spec.interpreter.executable,
        tag=spec.tag,
        installed=_installed(packages),
        size_bytes=size_bytes,
        built_at=built_at,
    )


def write_manifest(folder: Path, manifest: Manifest) -> None:
    (folder / _FILE).write_text(manifest.model_dump_json(indent=2) + "\n", encoding="utf-8")


def read_manifest(folder: Path) -> Manifest | None:
    """None for whatever is not a finished environment of this version's making."""
    try:
        return Manifest.model_validate_json((folder / _FILE).read_bytes())
    except (OSError, ValidationError):
        return None


def _installed(packages: Path) -> tuple[Package, ...]:
    found = {each.metadata["Name"]: each.version for each in metadata.distributions(path=[str(packages)])}
    return tuple(Package(name=name, version=found[name]) for name in sorted(found, key=str.lower))
