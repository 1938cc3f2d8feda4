"""`hood cluster`: makes a cluster, lets machines join it, and shows and removes its members."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from fumehood.cli.arguments import Parser
from fumehood.cli.log_output import show_warnings
from fumehood.cli.output import say
from fumehood.cluster.folder import AUTHORITY, FOLDER, NATS, SERVER_FILE, WORKER_FILE
from fumehood.errors import LostError, SandboxError, UsageError
from fumehood.host.folders import user_folder
from fumehood.policy import read_seconds

if TYPE_CHECKING:
    from fumehood.cluster.authority import ClusterAuthority

VARIABLE = "FUMEHOOD_CLUSTER"
_PORT = 4222
_HERE = "127.0.0.1"


class Arguments(argparse.Namespace):
    act: Callable[[Arguments], int]
    folder: str | None
    here: bool
    host: list[str]
    listen: str | None
    name: str
    role: str
    tenant: list[str]
    expires: str
    token: str
    tenant_name: str
    process: str
    agent: list[str]
    application: bool
    grants: bool
    space: str
    output: str | None


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="hood cluster", description="Sandboxes on many hosts, which meet at a NATS server.")
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    init = verbs.add_parser("init", help="make one", description="Make the keys of a cluster, and what NATS needs.")
    init.add_argument("--here", action="store_true", help="for this machine alone: NATS listens on the loopback")
    init.add_argument(
        "--host", metavar="NAME", action="append", default=[], help="a name of the host of NATS (repeatable)"
    )
    init.add_argument("--listen", metavar="HOST:PORT", help=f"where NATS listens (every address, port {_PORT})")
    init.set_defaults(act=_init)
    token = verbs.add_parser("token", help="let a machine join", description="Make a token by which one machine joins.")
    token.add_argument("name", metavar="NAME", help="what the new member is called")
    token.add_argument("--role", choices=("worker", "server"), default="worker", help="what it is (worker)")
    token.add_argument("--tenant", metavar="TENANT", action="append", default=[], help="serve these alone (repeatable)")
    token.add_argument("--expires", metavar="TIME", default="1h", help="how long the token holds (1h)")
    token.add_argument("--output", metavar="FILE", help="where the token goes, for this user alone (standard output)")
    token.set_defaults(act=_token)
    join = verbs.add_parser("join", help="join one", description="Become a member: as a server, or a worker later on.")
    join.add_argument("token", metavar="TOKEN", help="a join token, or the file of one")
    join.set_defaults(act=_join)
    credentials = verbs.add_parser(
        "credentials",
        help="let agents meet at it",
        description="Make the credentials of a process of a tenant's agents, for NatsRuntime(credentials=FILE).",
    )
    add = credentials.add_argument
    add("tenant_name", metavar="TENANT", help="whose agents they are; tenants do not see each other")
    add("process", metavar="PROCESS", help="the name by which other processes know this one")
    add("--agent", metavar="TYPE", action="append", default=[], help="a type that may be at home there (repeatable)")
    add("--application", action="store_true", help="it may send without being an agent, which needs no grants")
    add("--grants", action="store_true", help="it may write the grants of its types")
    add("--space", metavar="NAME", default="default", help="processes of other spaces are not seen (default)")
    add("--output", metavar="FILE", help="where the credentials go (PROCESS.creds)")
    credentials.set_defaults(act=_credentials)
    status = verbs.add_parser("status", help="who is in it", description="Members, and whether NATS answers.")
    status.set_defaults(act=_status)
    remove = verbs.add_parser("remove", help="remove a member", description="Revoke the credentials of a member.")
    remove.add_argument("name", metavar="NAME")
    remove.set_defaults(act=_remove)
    for verb in (init, token, join, credentials, status, remove):
        verb.add_argument("--folder", metavar="FOLDER", help=f"of the cluster (${VARIABLE}, or in the state folder)")
    return parser


def execute(arguments: list[str]) -> int:
    from fumehood.cluster.connection import require_extra

    chosen = build_parser().parse_args(arguments, namespace=Arguments())
    require_extra()
    show_warnings()
    return chosen.act(chosen)


def cluster_folder(chosen: str | None) -> Path:
    """Of the option, the variable, or the user's state folder."""
    given = chosen or os.environ.get(VARIABLE)
    return Path(given).absolute() if given else user_folder("state", os.environ, VARIABLE) / "cluster"


def _authority(chosen: Arguments) -> ClusterAuthority:
    from fumehood.cluster.authority import ClusterAuthority

    return ClusterAuthority(cluster_folder(chosen.folder) / AUTHORITY)


def _init(chosen: Arguments) -> int:
    from fumehood.cluster.authority import ClusterAuthority
    from fumehood.cluster.nats_config import write_config
    from fumehood.server.settings import split_address

    if chosen.here == bool(chosen.host):
        raise UsageError("give --here for this machine alone, or --host with a name that others reach it by")
    hosts = [_HERE] if chosen.here else chosen.host
    listen = chosen.listen or f"{_HERE if chosen.here else '0.0.0.0'}:{_PORT}"
    try:
        port = split_address(listen)[1]
    except ValueError as error:
        raise UsageError(f"--listen: {error}") from None
    folder = cluster_folder(chosen.folder)
    FOLDER.make(folder)
    authority = ClusterAuthority.create(folder / AUTHORITY, [f"tls://{host}:{port}" for host in hosts])
    config = write_config(authority, folder / NATS, listen, hosts)
    authority.make_member("server", "server").write(folder / SERVER_FILE)
    say("the cluster is there. To go on, each in a terminal of its own:")
    print(
        f"nats-server -c {config}\nhood serve --cluster {folder}\nhood cluster token NAME    # then, on another host:"
    )
    print("hood worker --join TOKEN")
    return 0


def _token(chosen: Arguments) -> int:
    from fumehood.cluster.credentials import write_private
    from fumehood.cluster.join import make_token

    if chosen.tenant and chosen.role != "worker":
        raise UsageError("--tenant is for workers; a server serves the tenants of its database")
    seconds = read_seconds(chosen.expires, "--expires")
    if chosen.output is not None and Path(chosen.output).exists():
        raise UsageError(f"{chosen.output} exists already; choose another place with --output")
    token = make_token(_authority(chosen), chosen.name, chosen.role, seconds, chosen.tenant)
    if chosen.output is None:
        print(token)
    else:
        write_private(Path(chosen.output), f"{token}\n")
        print(f"{chosen.name}: its token is in {chosen.output}; it lets one machine join, within {chosen.expires}")
    return 0


def _join(chosen: Arguments) -> int:
    from fumehood.cluster.join import join_cluster

    folder = cluster_folder(chosen.folder)
    FOLDER.make(folder)
    if known := [name for name in (SERVER_FILE, WORKER_FILE) if (folder / name).exists()]:
        # The token works once: it is not spent on what would take the place of another's credentials.
        raise UsageError(f"this host has joined already: {folder / known[0]}; choose another --folder")
    credentials = asyncio.run(join_cluster(chosen.token))
    name = SERVER_FILE if credentials.observer else WORKER_FILE
    credentials.write(folder / name)
    print(f"{credentials.name}: joined; its credentials are in {folder / name}")
    return 0


def _credentials(chosen: Arguments) -> int:
    from fumehood.cli.cluster.runtimes import RuntimeWishes, issue_credentials

    wishes = RuntimeWishes(
        chosen.tenant_name,
        chosen.process,
        tuple(chosen.agent),
        chosen.space,
        is_application=chosen.application,
        writes_grants=chosen.grants,
    )
    path = Path(chosen.output or f"{chosen.process}.creds")
    issue_credentials(_authority(chosen), wishes, path)
    print(f"{chosen.tenant_name}/{chosen.process}: its credentials are in {path}")
    return 0


def _status(chosen: Arguments) -> int:
    authority = _authority(chosen)
    for member in sorted(authority.members(), key=lambda each: each.id):
        of = f"  tenants {', '.join(member.tenants)}" if member.tenants else ""
        print(f"{member.role:8}{member.id}{of}")
    print(f"NATS at {', '.join(authority.urls)}: {asyncio.run(_probe(cluster_folder(chosen.folder)))}")
    return 0


async def _probe(folder: Path) -> str:
    from fumehood.cluster.connection import close, connect
    from fumehood.cluster.credentials import MemberCredentials

    try:
        client = await connect(MemberCredentials.read(folder / SERVER_FILE), is_observer=True)
    except (LostError, UsageError) as error:
        return str(error)
    await close(client)
    return "answers"


def _remove(chosen: Arguments) -> int:
    from fumehood.cluster.accounts import push_accounts

    authority = _authority(chosen)
    accounts = authority.revoke(chosen.name)
    try:
        asyncio.run(push_accounts(authority, accounts))
    except (LostError, SandboxError) as error:
        again = f"run `hood cluster remove {chosen.name}` again when NATS answers"
        raise LostError(
            f"{chosen.name} is removed, but NATS does not know it and lets it in; {again}: {error}"
        ) from error
    print(f"{chosen.name}: removed; its credentials are not valid any more")
    return 0
