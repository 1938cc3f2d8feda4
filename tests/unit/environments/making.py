"""EnvironmentSpec and finished environments, made by hand: no installer, no network."""

from __future__ import annotations

from pathlib import Path

from fumehood.environments import EnvironmentSpec, EnvironmentStore
from fumehood.environments.manifest import describe, seal, write_manifest
from fumehood.host.interpreter import Interpreter

PYTHON = Interpreter("/opt/python/bin/python3.11", "/opt/python", (3, 11))


def spec(
    *packages: str, are_hashed: bool = False, index: str | None = None, python: Interpreter = PYTHON
) -> EnvironmentSpec:
    return EnvironmentSpec(packages or ("six",), are_hashed, index, python, "cpython 3.11.7 .so glibc 2.36")


def put(root: Path, wanted: EnvironmentSpec) -> EnvironmentStore:
    """A store that has this environment."""
    store = EnvironmentStore(root)
    packages = root / wanted.key / "packages"
    packages.mkdir(parents=True)
    (packages / "six.py").write_text("answer = 42\n")
    sealed = seal(packages)
    manifest = describe(wanted, packages, content=sealed.content, size_bytes=sealed.size_bytes, built_at="today")
    write_manifest(root / wanted.key, manifest)
    return store
