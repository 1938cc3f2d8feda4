"""`hood mcp`: sandboxes for the clients of the Model Context Protocol."""

from __future__ import annotations

import argparse
import os
import secrets
import stat
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING

import anyio

from fumehood.backends.selection import select_backend
from fumehood.cli import overrides, policy_choice
from fumehood.cli.arguments import Parser
from fumehood.cli.commands import UncollectedImports
from fumehood.cli.interruption import Interruption
from fumehood.cli.log_output import show_warnings
from fumehood.cli.output import say
from fumehood.errors import UsageError
from fumehood.policy import Policy
from fumehood.policy.quantities import parse_duration
from fumehood.remote.place import find_server
from fumehood.sandbox.admission import warn_of_dangers

if TYPE_CHECKING:
    from fumehood.integrations.mcp import HttpEndpoint

_DETAILS = """\
Without --http it speaks on standard input and output, as clients expect that
start it themselves; docs/mcp.md has what to write into their configuration.
Each client has a sandbox of its own, which is gone when the client leaves.

Over HTTP every request needs `Authorization: Bearer TOKEN`. The token is made
up and printed, unless --token-file has one. Other addresses than those of the
loopback need --token-file and --allow-host, and something in front with TLS.
"""


class Arguments(overrides.Arguments):
    http: str | None
    token_file: str | None
    allow_host: list[str]
    allow_origin: list[str]
    clients: int
    idle: str
    approve_elsewhere: bool


def build_parser() -> argparse.ArgumentParser:
    description = "Serve sandboxes to clients of the Model Context Protocol."
    parser = Parser(prog="hood mcp", description=description, epilog=_DETAILS)
    overrides.add_options(parser, variables=False)
    add = parser.add_argument
    add("--http", metavar="HOST:PORT", help="listen there instead; port 0 takes any that is free")
    add("--token-file", metavar="FILE", help="the token that clients must send, readable only for you")
    add("--allow-host", metavar="NAME", action="append", default=[], help="a name clients reach us by (repeatable)")
    add("--allow-origin", metavar="URL", action="append", default=[], help="of a page that may use us (repeatable)")
    add("--clients", metavar="N", type=int, default=16, help="the most at the same time, over HTTP (16)")
    add("--idle", metavar="TIME", default="10m", help="after which a silent client is gone, over HTTP (10m)")
    add("--approve-elsewhere", action="store_true", help="never ask through the client, only with `hood approvals`")
    return parser


def execute(arguments: list[str]) -> int:
    parser = build_parser()
    chosen = parser.parse_args(arguments, namespace=Arguments())
    if chosen.http is None and (chosen.token_file or chosen.allow_host or chosen.allow_origin):
        parser.error("--token-file, --allow-host and --allow-origin are for --http")
    if chosen.clients < 1:
        parser.error(f"--clients {chosen.clients}: at least one has to fit in")
    idle_seconds = _idle(chosen.idle)
    if find_spec("mcp") is None:
        raise UsageError("hood mcp needs the protocol's SDK: pip install 'fumehood[mcp]'")
    policy = overrides.load_policy(chosen)
    policy_choice.tell(chosen)
    # At the start, where the message is seen, and not when the first call comes.
    if find_server() is None:
        select_backend(policy).check(policy)
    warn_of_dangers(policy)
    return _serve(chosen, policy, idle_seconds)


def _serve(chosen: Arguments, policy: Policy, idle_seconds: float) -> int:
    with UncollectedImports():
        from fumehood.integrations.mcp import ToolServerSettings, serve_http, serve_stdio

    settings = ToolServerSettings(
        policy,
        asks_client=not chosen.approve_elsewhere,
        most_clients=chosen.clients,
        idle_seconds=idle_seconds,
        report=say,
    )
    show_warnings()
    interruption = Interruption()
    if chosen.http is None:
        return _until_stopped(lambda: serve_stdio(settings), interruption)
    endpoint = _endpoint(chosen, chosen.http)
    return _until_stopped(lambda: serve_http(settings, endpoint, _announce(chosen, endpoint)), interruption)


def _until_stopped(serve: Callable[[], Awaitable[None]], interruption: Interruption) -> int:
    """A signal is how a server is ended, and no failure."""

    async def main() -> None:
        with anyio.CancelScope() as scope, interruption.cancelling(scope):
            await serve()

    anyio.run(main)
    return 0


def _endpoint(chosen: Arguments, place: str) -> HttpEndpoint:
    from fumehood.host.loopback import is_loopback
    from fumehood.integrations.mcp import HttpEndpoint

    host, _, port = place.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    if not port.isdigit() or int(port) > 65535:
        raise UsageError(f"--http {place!r} must be HOST:PORT, such as 127.0.0.1:8765")
    if chosen.token_file is None and not is_loopback(host):
        raise UsageError(f"--http {host}: others than this machine could connect; give them a token with --token-file")
    token = secrets.token_urlsafe(32) if chosen.token_file is None else _read_token(chosen.token_file)
    return HttpEndpoint(host, int(port), token, tuple(chosen.allow_host), tuple(chosen.allow_origin))


def _announce(chosen: Arguments, endpoint: HttpEndpoint) -> Callable[[str], None]:
    def announce(address: str) -> None:
        say(f"listening at {address}")
        if chosen.token_file is None:
            say(f"token: {endpoint.token}")
        if not endpoint.is_local:
            say("the token crosses the network as it is; put something with TLS in front")

    return announce


def _read_token(path: str) -> str:
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(4096)
    except OSError as error:
        raise UsageError(f"--token-file {path}: {error.strerror}") from None
    if stat.S_ISREG(mode) and mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise UsageError(f"--token-file {path}: others can read or write it; chmod 600 {path}")
    return data.decode("ascii", "replace").strip()


def _idle(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise UsageError(f"--idle {text!r}: {error}") from None
