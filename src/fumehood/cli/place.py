"""Where a command opens its sandbox: on this machine, or at the server of the environment or of `hood login`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from fumehood.cli.output import say
from fumehood.frozen import frozen
from fumehood.policy import Policy
from fumehood.remote.place import find_server
from fumehood.sandbox.async_sandbox import AsyncSandbox

if TYPE_CHECKING:
    from fumehood.audit import Trail
    from fumehood.remote.server import Server


@frozen
class NamedSandboxUse:
    """A sandbox with a name, and how one command uses it; see `AsyncSandbox.open`."""

    name: str
    policy: Policy | None = None
    """Another policy than its own, which it keeps from then on."""
    once: bool = False
    """Whether that policy is for this use alone."""
    wait: bool = False


def fresh_sandbox(
    policy: Policy,
    *,
    session: bool = False,
    learn: bool = False,
    gated: bool = False,
    audit: Trail | None = None,
    progress: Callable[[str], None],
) -> AsyncSandbox:
    """`audit` is for one on this machine; a server has its own."""
    if server := _find_server():
        box = server.sandbox(policy, session=session, learn=learn, gated=gated, progress=progress)
        return cast("AsyncSandbox", box)  # it has the methods that commands use
    return AsyncSandbox(policy, session=session, learn=learn, gated=gated, audit=audit, progress=progress)


def named_sandbox(
    use: NamedSandboxUse, *, gated: bool = False, audit: Trail | None = None, progress: Callable[[str], None]
) -> AsyncSandbox:
    name, policy, once, wait = use.name, use.policy, use.once, use.wait
    if server := _find_server():
        return cast("AsyncSandbox", server.open(name, policy, once=once, wait=wait, gated=gated, progress=progress))
    return AsyncSandbox.open(name, policy, once=once, wait=wait, gated=gated, audit=audit, progress=progress)


def _find_server() -> Server | None:
    server = find_server()
    if server is not None and os.isatty(2):
        say(f"at {server.url}")
    return server
