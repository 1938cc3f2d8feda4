"""What `hood doctor` says of the backends that are built on an engine."""

from __future__ import annotations

import anyio

from fumehood.backends.docker import enforcement
from fumehood.backends.docker.backend import RUNTIMES
from fumehood.backends.docker.engine import Engine
from fumehood.backends.docker.reference import DEFAULT_IMAGE
from fumehood.errors import FumehoodError
from fumehood.policy import Policy


def examine(name: str) -> tuple[bool, str]:
    """Whether a sandbox with an empty policy would open, and how or why not."""
    try:
        return True, anyio.run(_examine, name)
    except FumehoodError as error:
        return False, str(error)


async def _examine(name: str) -> str:
    policy = Policy(backend=name)
    engine = Engine(policy.docker)
    try:
        facts = await engine.facts()
        runtime = RUNTIMES[name] or facts.default_runtime
        image = await engine.image(DEFAULT_IMAGE)
        enforcement.refuse_machine(policy, name, runtime, facts, image)
    finally:
        await engine.close()
    return f"engine at {facts.host}, runtime {runtime}, image {image.reference}"
