"""`hood tenant`: the tenants of a server."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from datetime import datetime

from fumehood.characters import one_line
from fumehood.cli.arguments import Parser
from fumehood.cli.output import say
from fumehood.cli.server.calls import PlaceArguments, add_place, call


class Arguments(PlaceArguments):
    act: Callable[[Arguments], int]
    name: str


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="hood tenant", description="The tenants of a server; for those who run it, on its host.")
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    create = verbs.add_parser("create", help="make one", description="Make a tenant, with the policies of the package.")
    create.set_defaults(act=_create)
    listing = verbs.add_parser("list", help="which there are", description="All tenants.")
    listing.set_defaults(act=_list)
    remove = verbs.add_parser(
        "remove", help="remove one", description="Remove a tenant and all of it but its audit log."
    )
    remove.set_defaults(act=_remove)
    for verb in (create, remove):
        verb.add_argument("name", metavar="TENANT")
    for verb in (create, listing, remove):
        add_place(verb)
    return parser


def execute(arguments: list[str]) -> int:
    chosen = build_parser().parse_args(arguments, namespace=Arguments())
    return chosen.act(chosen)


def _create(chosen: Arguments) -> int:
    call(chosen, "POST", "tenants", body={"name": chosen.name})
    print(f"{chosen.name}: made; `hood key create {chosen.name}` makes a key for it")
    return 0


def _list(chosen: Arguments) -> int:
    tenants = call(chosen, "GET", "tenants")
    for tenant in tenants:
        made = datetime.fromtimestamp(tenant["created_at"]).astimezone().strftime("%Y-%m-%d %H:%M")
        print(f"{made}  {one_line(tenant['name'])}")
    if not tenants:
        say("there is no tenant; `hood tenant create NAME` makes one")
    return 0


def _remove(chosen: Arguments) -> int:
    call(chosen, "DELETE", "tenants", chosen.name)
    print(f"{chosen.name}: removed")
    return 0
