"""A guest starts from what the host has compiled if its Python is of the same release, and else from the sources."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import MAGIC_NUMBER
from typing import Any

import pytest

from fumehood.backends.relay import bootstrap

SPEC: Any = {"word": "of the host"}
# In place of the service's life, which needs a container: what it would have been started with, and from what.
TOLD = "print(told['spec'], entry.main.__code__.co_filename, type(modules['guest.relay.service'][2]).__name__)"


def started_from(data: bytes) -> str:
    *options, program = bootstrap.command((sys.executable,))
    program = program.replace('entry.main(told["spec"], b"")', TOLD)
    return subprocess.run([*options, program], input=data, capture_output=True, check=True).stdout.decode().strip()


def test_a_guest_of_our_release_compiles_nothing() -> None:
    assert started_from(bootstrap.packed(SPEC)) == f"{SPEC} /guest/relay/service.py code"


@pytest.mark.parametrize("magic", ["00000000", ""])
def test_a_guest_of_another_release_starts_from_the_sources(magic: str) -> None:
    told = bootstrap.packed(SPEC).replace(MAGIC_NUMBER.hex().encode(), magic.ljust(8).encode())
    assert started_from(told) == f"{SPEC} /guest/relay/service.py str"
