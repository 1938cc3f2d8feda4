"""A process with a greeter, on NATS or on AutoGen's gRPC runtime: `python -m benchmarks.distant_greeter KIND ADDRESS`.

It writes a line when it is ready, and ends with its standard input.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from benchmarks.runtimes import Greeting, Reply
from fumehood.audit import AuditLog
from fumehood.runtime import handles
from fumehood.runtime.nats import NatsRuntime

SPACE = "bench"


@handles
async def greet(message: Greeting) -> Reply:
    return Reply(text=f"Hello {message.name}")


async def serve_nats(address: str, log: str) -> None:
    async with NatsRuntime(address, space=SPACE, audit=AuditLog.at(Path(log)) if log else False) as runtime:
        await runtime.register("greeter", greet)
        await _until_the_end()


async def serve_autogen(address: str) -> None:
    from autogen_ext.runtimes.grpc import GrpcWorkerAgentRuntime, GrpcWorkerAgentRuntimeHost

    from benchmarks import autogen_agents

    host = GrpcWorkerAgentRuntimeHost(address)
    host.start()
    runtime = GrpcWorkerAgentRuntime(address)
    await runtime.start()
    autogen_agents.introduce(runtime)
    await autogen_agents.Greeter.register(runtime, "greeter", lambda: autogen_agents.Greeter("greets"))
    await _until_the_end()
    await runtime.stop()
    await host.stop()


async def _until_the_end() -> None:
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    kind, address, log = (*sys.argv[1:], "")[:3]
    asyncio.run(serve_nats(address, log) if kind == "nats" else serve_autogen(address))
