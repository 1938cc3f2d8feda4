"""Wraps a layer as what an engine loads, in `docker load`'s format: written here, so that equal images are the same."""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_CHUNK_BYTES = 1024 * 1024
# The kernel's names for what Go calls otherwise.
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, slots=True)
class Configuration:
    machine: str
    user: str
    variables: Mapping[str, str]
    labels: Mapping[str, str]
    made_at: int


@dataclass(frozen=True, slots=True)
class ImageArchive:
    name: str
    configuration: bytes
    layer: Path

    @property
    def digest(self) -> str:
        """By which the image is known."""
        return f"sha256:{hashlib.sha256(self.configuration).hexdigest()}"

    async def chunks(self) -> AsyncIterator[bytes]:
        identity = self.digest.removeprefix("sha256:")
        contents = [{"Config": f"{identity}.json", "RepoTags": [self.name], "Layers": ["layer.tar"]}]
        yield _member(f"{identity}.json", self.configuration)
        yield _member("manifest.json", json.dumps(contents).encode())
        yield _header("layer.tar", self.layer.stat().st_size)
        with self.layer.open("rb") as stream:
            while data := stream.read(_CHUNK_BYTES):
                yield data
        yield _padding(self.layer.stat().st_size) + b"\0" * (2 * tarfile.BLOCKSIZE)


def image_configuration(wanted: Configuration, layer_digest: str) -> bytes:
    made_at = datetime.fromtimestamp(wanted.made_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    content: dict[str, Any] = {
        "architecture": _ARCHITECTURES.get(wanted.machine, wanted.machine),
        "os": "linux",
        "created": made_at,
        "config": {
            "User": wanted.user,
            "Env": [f"{name}={value}" for name, value in sorted(wanted.variables.items())],
            "Cmd": ["python3"],
            "WorkingDir": "/workspace",
            "Labels": dict(wanted.labels),
        },
        "rootfs": {"type": "layers", "diff_ids": [layer_digest]},
        "history": [{"created": made_at, "created_by": "hood image build"}],
    }
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def _header(name: str, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, 0o644
    return info.tobuf(tarfile.PAX_FORMAT)


def _member(name: str, content: bytes) -> bytes:
    return _header(name, len(content)) + content + _padding(len(content))


def _padding(size: int) -> bytes:
    return b"\0" * (-size % tarfile.BLOCKSIZE)
