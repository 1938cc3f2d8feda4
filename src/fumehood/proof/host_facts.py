"""What a report is about besides the policy: versions, kernel, machine."""

from __future__ import annotations

import os
import platform

from pydantic import BaseModel, ConfigDict

import fumehood


class ProofHost(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    version: str
    backend: str
    kernel: str
    machine: str
    python: str
    system: str
    user: str
    """`root`, or `ordinary user`: limits differ."""


def describe_host(backend: str) -> ProofHost:
    return ProofHost(
        version=fumehood.__version__,
        backend=backend,
        kernel=f"{platform.system()} {platform.release()} {platform.version()}",
        machine=platform.machine(),
        python=platform.python_version(),
        system=_system(),
        user="root" if os.geteuid() == 0 else "ordinary user",
    )


def _system() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        return ""
