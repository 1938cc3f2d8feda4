"""`hood console`: pages in a browser for the audit log and the approvals of one user, without a server to set up."""

from __future__ import annotations

import argparse
import asyncio
import socket
import sys
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from fumehood.cli.arguments import Parser
from fumehood.cli.commands import UncollectedImports
from fumehood.cli.interruption import Interruption
from fumehood.cli.output import say
from fumehood.errors import UsageError

if TYPE_CHECKING:
    from fumehood.server.console.local_host import LocalConsole

_DETAILS = """\
It listens at the loopback, for the user who starts it alone: the link that it
prints works once, and Enter prints another one. What runs, what was denied and
what waits for an approval is shown as it happens, and can be answered there.
"""


class Arguments(argparse.Namespace):
    port: int
    log: str | None
    no_browser: bool


def build_parser() -> argparse.ArgumentParser:
    description = "Show the audit log and the approvals of this user in a browser."
    parser = Parser(prog="hood console", description=description, epilog=_DETAILS)
    add = parser.add_argument
    add("--port", type=int, default=0, metavar="N", help="where at the loopback to listen (any that is free)")
    add("--log", metavar="FOLDER", help="of another log than your own, which is shown and not written to")
    add("--no-browser", action="store_true", help="print the link alone, and open nothing")
    return parser


def execute(arguments: list[str]) -> int:
    chosen = build_parser().parse_args(arguments, namespace=Arguments())
    if any(find_spec(name) is None for name in ("starlette", "uvicorn", "jinja2")):
        raise UsageError("hood console needs more packages: pip install 'fumehood[console]'")
    with UncollectedImports():
        from fumehood.server.console.local_host import LocalConsole
        from fumehood.server.console.local_source import LocalLogSource
    console = LocalConsole(LocalLogSource(None if chosen.log is None else Path(chosen.log).absolute()))
    try:
        listener = socket.create_server(("127.0.0.1", chosen.port))
    except (OSError, OverflowError) as error:
        raise UsageError(f"--port {chosen.port}: {getattr(error, 'strerror', None) or error}") from error
    with listener:
        return asyncio.run(_serve(console, listener, Interruption(), opens=not chosen.no_browser))


async def _serve(console: LocalConsole, listener: socket.socket, interruption: Interruption, *, opens: bool) -> int:
    import uvicorn

    from fumehood.server.console.local_host import OwnConnections, local_app

    port: int = listener.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    config = uvicorn.Config(
        local_app(console, port),
        http=OwnConnections,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=1,
        limit_concurrency=200,
    )
    server = uvicorn.Server(config)
    server.capture_signals = nullcontext  # type: ignore[method-assign]  # they are handled below

    def announce() -> None:
        link = console.new_link(address)
        print(link, flush=True)
        if opens and sys.stdin.isatty():
            _open_browser(link)

    def end(_: int) -> None:
        console.close()
        server.should_exit = True

    announce()
    if sys.stdin.isatty():
        say("the link works once; Enter for another one, Ctrl-C to end")
        asyncio.get_running_loop().add_reader(sys.stdin, lambda: sys.stdin.readline() and announce())
    with interruption.handing_to(end):
        await server.serve(sockets=[listener])
    return 0


def _open_browser(link: str) -> None:
    import webbrowser

    webbrowser.open(link)
