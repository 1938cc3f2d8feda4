"""`hood serve`: sandboxes of this host for many tenants, over HTTP."""

from __future__ import annotations

import argparse
import asyncio
import os
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from fumehood.audit.log import current_user
from fumehood.cli.arguments import Parser
from fumehood.cli.commands import UncollectedImports
from fumehood.cli.interruption import Interruption
from fumehood.cli.log_output import show_warnings
from fumehood.cli.output import say
from fumehood.cli.server.calls import (
    FILE,
    add_place,
    make_operator_key,
    require_extra,
    write_note,
)
from fumehood.errors import SandboxError, UsageError
from fumehood.host.service_manager import notify, watchdog_seconds
from fumehood.policy.quantities import format_duration

if TYPE_CHECKING:
    from fumehood.server.lifetime import ServerState
    from fumehood.server.listener import ServerListener
    from fumehood.server.settings import ServerSettings

_DETAILS = """\
Without --config the server keeps what it has in the user's state folder, or in
$FUMEHOOD_SERVER_STATE. One server uses an SQLite file; several share one
PostgreSQL. Other addresses than the loopback need TLS, here or in a proxy.
SIGTERM lets sandboxes end within the time to drain; a second one does not wait.
Every option has a key in the file of --config; docs/server.md has them all.
"""


class Arguments(argparse.Namespace):
    init: str | None
    listen: str | None
    host: list[str]
    e2b: str | None
    config: str | None
    database: str | None
    tls_cert: str | None
    tls_key: str | None
    behind_proxy: list[str]
    drain: str | None
    cluster: str | None


def build_parser() -> argparse.ArgumentParser:
    description = "Serve sandboxes of this host to many tenants, over HTTP."
    parser = Parser(prog="hood serve", description=description, epilog=_DETAILS, usage="hood serve [options]")
    add = parser.add_argument
    add("--init", metavar="TENANT", help="make a tenant first, and print a key for it")
    add("--listen", metavar="HOST:PORT", help="where (127.0.0.1:8440); port 0 takes any that is free")
    add("--host", metavar="NAME", action="append", default=[], help="a name clients reach us by (repeatable)")
    add("--e2b", metavar="HOST:PORT", help="serve programs with E2B's SDKs there, too (docs/e2b.md)")
    add_place(parser)
    add("--tls-cert", metavar="FILE", help="the certificate, with those between it and its root")
    add("--tls-key", metavar="FILE", help="its key")
    add("--behind-proxy", metavar="CIDR", action="append", default=[], help="network of a proxy with TLS (repeatable)")
    add("--cluster", metavar="FOLDER", help="open sandboxes on the workers of this cluster (docs/many-machines.md)")
    add("--drain", metavar="TIME", help="how long sandboxes may go on after SIGTERM (10m)")
    return parser


def execute(arguments: list[str]) -> int:
    chosen = build_parser().parse_args(arguments, namespace=Arguments())
    require_extra()
    if (chosen.tls_cert is None) != (chosen.tls_key is None):
        raise UsageError("--tls-cert and --tls-key belong together; give both")
    with UncollectedImports():
        from fumehood.backends.native.delegation import use_delegated_cgroup
        from fumehood.server.listener import ServerListener
        from fumehood.server.settings import load_settings
    settings = load_settings(
        chosen.config,
        listen=chosen.listen,
        hosts=chosen.host,
        e2b=chosen.e2b,
        database=chosen.database,
        tls={"certificate": chosen.tls_cert, "key": chosen.tls_key} if chosen.tls_cert else None,
        behind_proxy=chosen.behind_proxy,
        drain=chosen.drain,
        cluster=chosen.cluster and os.path.abspath(chosen.cluster),
    )
    use_delegated_cgroup()
    show_warnings()
    return asyncio.run(_serve(ServerListener, settings, chosen.init, Interruption()))


async def _serve(
    listener_of: type[ServerListener], settings: ServerSettings, init: str | None, interruption: Interruption
) -> int:
    from fumehood.server.storage.choice import is_shared
    from fumehood.server.storage.database import StorageError

    note = settings.folder / FILE
    is_alone = not is_shared(settings.database_url)
    tasks: list[asyncio.Task[None]] = []

    def begin(address: str, server: ServerState) -> None:
        announcement = _announce(settings, address, listener.e2b_address, server, init, is_alone=is_alone)
        tasks.append(asyncio.ensure_future(announcement))

    listener = listener_of(settings, begin)
    watchdog = asyncio.ensure_future(_answer_watchdog())
    try:
        with interruption.handing_to(lambda _: _stop(listener, settings)):
            await listener.run()
    except StorageError as error:
        raise SandboxError(str(error)) from error
    finally:
        watchdog.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if is_alone and tasks:
            with suppress(FileNotFoundError):
                note.unlink()
    return 0


def _stop(listener: ServerListener, settings: ServerSettings) -> None:
    notify("STOPPING=1", "STATUS=waiting for open sandboxes to end")
    if listener.stop():
        time = format_duration(settings.drain)
        say(f"no more sandboxes are opened; those that are open may take {time} to end, or end with a second signal")


async def _answer_watchdog() -> None:
    """In the loop that serves requests: a server that hangs does not answer."""
    seconds = watchdog_seconds()
    while seconds is not None:
        notify("WATCHDOG=1")
        await asyncio.sleep(seconds)


async def _announce(
    settings: ServerSettings, address: str, e2b: str | None, server: ServerState, init: str | None, *, is_alone: bool
) -> None:
    if is_alone:
        write_note(settings.folder / FILE, address, await make_operator_key(server.database, settings), settings)
    if init is not None:
        await _initialise(_name(settings, address), e2b, server, init)
    _warn_of_strictness(settings)
    say(f"listening at {address}" + (f", for E2B's SDKs at {e2b}" if e2b else ""))
    notify("READY=1", f"STATUS=listening at {address}")


def _name(settings: ServerSettings, address: str) -> str:
    """The address as clients write it."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{settings.hosts[0]}:{parts.port}" if settings.hosts else address


def _warn_of_strictness(settings: ServerSettings) -> None:
    """A server that refuses its sandboxes says so when it starts, and not only to clients, who cannot help it."""
    from fumehood.server.sandboxes.tenancy import has_cgroup_for

    if settings.strict and settings.cluster is None and not has_cgroup_for("memory"):
        say(
            "warning: no cgroup limits memory here for this user, and the server is strict: it refuses sandboxes. "
            "Run it as root or with cgroups of its own (docs/deploy.md), or set `strict: false`"
        )


async def _initialise(address: str, e2b: str | None, server: ServerState, tenant: str) -> None:
    from fumehood.server import events
    from fumehood.server.api.keys import key_created
    from fumehood.server.e2b.templates import BASE, BASE_POLICY
    from fumehood.server.identity.keys import create_key, e2b_spelling
    from fumehood.server.identity.principals import OF_TENANTS
    from fumehood.server.tenants.catalogue import put_policy
    from fumehood.server.tenants.tenants import create_tenant, list_tenants

    if tenant in {known.name for known in await list_tenants(server.database)}:
        say(f"there is a tenant {tenant} already; `hood key create {tenant}` makes another key")
        return
    try:
        await create_tenant(server.database, tenant, current_user())
    except UsageError as error:
        say(f"--init: {error}")
        return
    key, details = await create_key(server.database, tenant, "first", OF_TENANTS)
    await server.chains.own().write(events.TenantCreated(tenant), key_created(tenant, details))
    say(f"tenant {tenant} is there; its key is shown this once. To go on, in another terminal:")
    print(f"export FUMEHOOD_SERVER={address}\nexport FUMEHOOD_KEY={key}\nhood run -c 'print(6 * 7)'", flush=True)
    if e2b is not None:
        await put_policy(server.database, tenant, BASE, BASE_POLICY, current_user())
        print(f"export E2B_API_KEY={e2b_spelling(key)}\nexport E2B_API_URL={e2b} E2B_SANDBOX_URL={e2b}", flush=True)
