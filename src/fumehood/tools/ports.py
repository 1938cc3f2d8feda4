"""The tool that publishes a port of the sandbox, so that the user can look at a server that a model has started.

The policy lists in `network.publish` which ports may be had. The address is at the loopback of the machine that this
program is on, and wants a token: what a model reads of it lets no one in from another machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated
from weakref import WeakKeyDictionary

from pydantic import Field

from fumehood.policy import Policy
from fumehood.tools.result import ToolOutput, ToolStatus
from fumehood.tools.tool import MOST_WAIT_SECONDS, Arguments, Risk, Tool, ToolContext

if TYPE_CHECKING:
    from fumehood.sandbox.interface import AnyExposedPort, AnySandbox


class ExposePortArguments(Arguments):
    port: Annotated[int, Field(ge=1, le=65535, description="The port at which the server in the sandbox listens.")]
    wait: Annotated[
        float, Field(ge=0, le=MOST_WAIT_SECONDS, description="Seconds to wait until a program listens there.")
    ] = 10


class _ExposedPorts:
    """One address for each port, however often it is asked for; a sandbox that is gone takes them with it."""

    def __init__(self) -> None:
        self._ports: WeakKeyDictionary[AnySandbox, dict[int, AnyExposedPort]] = WeakKeyDictionary()

    async def expose(self, context: ToolContext, given: ExposePortArguments) -> ToolOutput:
        ports = self._ports.setdefault(context.sandbox, {})
        exposed = ports.get(given.port)
        if exposed is None or not exposed.is_open:
            exposed = ports[given.port] = await context.sandbox.expose(given.port)
        try:
            await exposed.wait_ready(given.wait)
        except TimeoutError:
            words = f"No program listens on port {given.port}, at 127.0.0.1 or at all addresses of the sandbox."
            return ToolOutput(f"{words} Start one with start_process, and call this again.", ToolStatus.ERROR)
        return ToolOutput(f"Port {given.port} is published. The user can open it in a browser: {exposed.url}")


def port_tools(policy: Policy) -> tuple[Tool, ...]:
    """The tool to publish ports, for one agent or one connection; none where the policy publishes no port."""
    if not policy.network.publish:
        return ()
    return (
        Tool(
            "expose_port",
            "Publish a port of a server that runs in the sandbox, and get the address at which the user can open it.",
            ExposePortArguments,
            Risk.MEDIUM,
            _ExposedPorts().expose,
            parallel=False,
            about=_about,
        ),
    )


def _about(policy: Policy) -> str:
    return f"Ports that may be published: {', '.join(map(str, policy.network.publish))}."
