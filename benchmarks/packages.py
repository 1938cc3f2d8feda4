"""A fresh run with pandas, against plain python that imports it."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator

from anyio import to_thread

from fumehood.cli.bench.measurement import Row, command, in_turns
from fumehood.cli.bench.runs import interpreter, runner
from fumehood.environments import EnvironmentSpec, EnvironmentStore
from fumehood.errors import FumehoodError
from fumehood.policy import Policy
from fumehood.sandbox.async_sandbox import AsyncSandbox, sandboxed_installer

_PANDAS = {"environment": {"packages": ["pandas"], "preload": ["pandas"]}, "resources": {"memory": "2G"}}


async def measure(rounds: int) -> AsyncIterator[Row]:
    """The same packages on both sides: those of the sandbox's environment."""
    name, code, few = "fresh run with pandas / python + import pandas", "import pandas; print(1)", max(3, rounds // 4)
    policy = Policy(**_PANDAS)
    try:
        folder = await to_thread.run_sync(_install, policy)
    except FumehoodError as error:
        yield Row(name, missing=f"not installed: {str(error).splitlines()[0]}")
        return
    async with AsyncSandbox(policy) as box:
        plain = command([interpreter(), "-S", "-c", code], {"PYTHONPATH": folder})
        ours, baseline = await in_turns(few, runner(box, code), plain)
    yield Row(name, ours, against=baseline, budget="<= 0.04x")


def _install(policy: Policy) -> str:
    spec = EnvironmentSpec.of(policy.environment)
    store = EnvironmentStore.open_default(sandboxed_installer())
    return str(store.build(spec, lambda line: print(line, file=sys.stderr)).folder)
