"""`hood quota`: what a server's tenants may have and use."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from datetime import datetime
from typing import Any

from fumehood.characters import one_line
from fumehood.cli.arguments import Parser
from fumehood.cli.server.calls import PlaceArguments, add_place, call

_DETAILS = """\
quotas:
  sandboxes              open at once
  openings_per_minute    of sandboxes
  runs                   under way at once
  cpu_seconds_per_day    of all runs
  memory                 of all sandboxes together, such as 4G
  workspace_bytes        of all open sandboxes together, such as 64G
  egress_bytes_per_day   through the gateway, in both directions, such as 1G
  requests_per_second    of the HTTP API, for each server
"""


class Arguments(PlaceArguments):
    act: Callable[[Arguments], int]
    tenant: str
    quota: str
    value: str


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="hood quota", description="Quotas of tenants; for those who run the server, on its host.")
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    show = verbs.add_parser("show", help="what a tenant may have", description="Quotas of a tenant, and what is used.")
    show.set_defaults(act=_show)
    change = verbs.add_parser("set", help="change one", description="Change a quota.", epilog=_DETAILS)
    change.set_defaults(act=_set)
    for verb in (show, change):
        verb.add_argument("tenant", metavar="TENANT")
    change.add_argument("quota", metavar="QUOTA")
    change.add_argument("value", metavar="VALUE", help="a number, or a size such as 4G")
    for verb in (show, change):
        add_place(verb)
    return parser


def execute(arguments: list[str]) -> int:
    chosen = build_parser().parse_args(arguments, namespace=Arguments())
    return chosen.act(chosen)


def _show(chosen: Arguments) -> int:
    for state in call(chosen, "GET", "tenants", chosen.tenant, "quotas"):
        print(_line(state))
    return 0


def _set(chosen: Arguments) -> int:
    path = ("tenants", chosen.tenant, "quotas", chosen.quota)
    states = call(chosen, "PUT", *path, body={"value": _number(chosen.value)})
    print(_line(next(state for state in states if state["quota"] == chosen.quota)))
    return 0


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _line(state: dict[str, Any]) -> str:
    used = "" if state["used"] is None else f"{state['used']:g} used"
    resets = state["resets_at"]
    until = "" if resets is None else f", until {datetime.fromtimestamp(resets).astimezone():%H:%M}"
    return (
        f"{state['quota']:22} {state['limit']:>12.10g}  {used + until:26} set by {one_line(state['set_by'])}".rstrip()
    )
