"""Where sandboxes are opened by default: at the server of the environment or of the login, else on this machine."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Unpack

from fumehood.policy import AnyPolicy
from fumehood.remote.login import find_login
from fumehood.sandbox.interface import AnySandbox, Opener, SandboxOptions
from fumehood.sandbox.opener import HERE

if TYPE_CHECKING:
    from fumehood.remote.server import Server
    from fumehood.sandbox.named import AnyNamedSandboxes


def find_server() -> Server | None:
    """None for this machine; nothing of a connection is imported then."""
    login = find_login()
    if login is None:
        return None
    from fumehood.remote.server import Server

    return Server(login.url, login.key, login.ca_file)


def named_sandboxes() -> AnyNamedSandboxes:
    """Those of the user on this machine, or of the tenant at the server."""
    server = find_server()
    if server is not None:
        return server.named
    from fumehood.sandbox.named import NamedSandboxes

    return NamedSandboxes()


class UsualOpener:
    """Asks for the place each time, so that a program decides before it opens a sandbox, and not before it imports."""

    def sandbox(
        self, policy: AnyPolicy | None = None, **options: Unpack[SandboxOptions]
    ) -> AbstractAsyncContextManager[AnySandbox]:
        opener: Opener = find_server() or HERE
        return opener.sandbox(policy, **options)


USUAL = UsualOpener()
