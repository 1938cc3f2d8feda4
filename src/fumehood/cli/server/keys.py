"""`hood key`: the keys of a server's tenants."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from datetime import datetime
from typing import Any

from fumehood.characters import one_line
from fumehood.cli.arguments import Parser
from fumehood.cli.output import say
from fumehood.cli.server.calls import PlaceArguments, add_place, call

_SCOPES = ("run", "files", "approve", "audit", "policies", "keys", "operate")
_DETAILS = """\
scopes:
  run       open sandboxes and run code in them
  files     read and write files in them
  approve   answer calls that wait for an approval
  audit     read the tenant's audit log
  policies  change the tenant's policies and secrets
  keys      make and revoke keys of the tenant
  operate   tenants, keys and quotas of all: for those who run the server
"""


class Arguments(PlaceArguments):
    act: Callable[[Arguments], int]
    tenant: str
    id: str
    name: str
    scope: list[str]
    days: float | None
    network: list[str]


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="hood key", description="Keys of tenants; for those who run the server, on its host.")
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    create = verbs.add_parser(
        "create", help="make one", description="Make a key, and print it this once.", epilog=_DETAILS
    )
    create.set_defaults(act=_create)
    listing = verbs.add_parser("list", help="which there are", description="Keys of a tenant, without their secrets.")
    listing.set_defaults(act=_list)
    revoke = verbs.add_parser("revoke", help="end one", description="End a key: from now on it opens nothing.")
    revoke.set_defaults(act=_revoke)
    for verb in (create, listing, revoke):
        verb.add_argument("tenant", metavar="TENANT")
    revoke.add_argument("id", metavar="ID", help="as `hood key list` shows it")
    add = create.add_argument
    add("--name", default="key", metavar="TEXT", help="what it is for")
    add("--scope", action="append", default=[], choices=_SCOPES, metavar="SCOPE", help="repeatable (run, files)")
    add("--days", type=float, metavar="N", help="after which it is not valid any more (never)")
    add("--network", action="append", default=[], metavar="CIDR", help="where it may be used (anywhere; repeatable)")
    for verb in (create, listing, revoke):
        add_place(verb)
    return parser


def execute(arguments: list[str]) -> int:
    chosen = build_parser().parse_args(arguments, namespace=Arguments())
    return chosen.act(chosen)


def _create(chosen: Arguments) -> int:
    scopes = chosen.scope or ["run", "files"]
    body = {"name": chosen.name, "scopes": scopes, "days": chosen.days, "networks": chosen.network}
    made = call(chosen, "POST", "tenants", chosen.tenant, "keys", body=body)
    say(f"key {made['id']} of {chosen.tenant} ({', '.join(made['scopes'])}); it is shown this once")
    print(made["key"])
    return 0


def _list(chosen: Arguments) -> int:
    keys = call(chosen, "GET", "tenants", chosen.tenant, "keys")
    for key in keys:
        print(f"{key['id']}  {_state(key):16}  {','.join(key['scopes'])}  {one_line(key['name'])}")
    if not keys:
        say(f"{chosen.tenant} has no key; `hood key create {chosen.tenant}` makes one")
    return 0


def _state(key: dict[str, Any]) -> str:
    if key["revoked_at"] is not None:
        return "revoked"
    if key["expires_at"] is None:
        return "valid"
    expires = datetime.fromtimestamp(key["expires_at"]).astimezone()
    now = datetime.now().astimezone()
    return "expired" if expires <= now else f"until {expires:%Y-%m-%d}"


def _revoke(chosen: Arguments) -> int:
    call(chosen, "DELETE", "tenants", chosen.tenant, "keys", chosen.id)
    print(f"{chosen.id}: revoked")
    return 0
