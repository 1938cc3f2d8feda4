"""`hood quota`: what a server's tenants may have and use."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from datetime import datetime
from typing import Any

from fumehood.characters import one_line
from fumehood.cli.arguments import Parser
from fumehood.cli.server.calls import PlaceArguments, add_place, call
from fumehood.errors import UsageError
from fumehood.policy.quantities import format_size, parse_size

QUOTAS = {
    "sandboxes": "open at once",
    "openings_per_minute": "of sandboxes",
    "runs": "under way at once",
    "cpu_seconds_per_day": "of all runs",
    "memory": "of all sandboxes together, such as 4G",
    "workspace_bytes": "of all open sandboxes together, such as 64G",
    "egress_bytes_per_day": "through the gateway, in both directions, such as 1G",
    "requests_per_second": "of the HTTP API, for each server",
    "named_sandboxes": "that are kept",
    "snapshots": "that are kept",
    "disk": "of all that is kept, such as 10G",
}
"""All that there are: name -> of what, or when."""
_OF_BYTES = frozenset({"memory", "workspace_bytes", "egress_bytes_per_day", "disk"})
_DETAILS = "\n".join(["quotas:", *(f"  {name:21}  {text}" for name, text in QUOTAS.items())])


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
    change.add_argument("quota", choices=tuple(QUOTAS), metavar="QUOTA", help="one of those below")
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
    states = call(chosen, "PUT", *path, body={"value": _number(chosen.quota, chosen.value)})
    print(_line(next(state for state in states if state["quota"] == chosen.quota)))
    return 0


def _number(quota: str, text: str) -> float:
    try:
        return parse_size(text) if quota in _OF_BYTES and not text.isdecimal() else float(text)
    except ValueError as error:
        reason = error if quota in _OF_BYTES else f"{text!r} is not a number"
        raise UsageError(f"{quota}: {reason}") from None


def _line(state: dict[str, Any]) -> str:
    quota, used, resets = state["quota"], state["used"], state["resets_at"]
    spent = "" if used is None else f"{_amount(quota, used)} used"
    until = "" if resets is None else f", until {datetime.fromtimestamp(resets).astimezone():%H:%M}"
    limit = _amount(quota, state["limit"])
    return f"{quota:22} {limit:>12}  {spent + until:26} set by {one_line(state['set_by'])}".rstrip()


def _amount(quota: str, value: float) -> str:
    return format_size(value) if quota in _OF_BYTES and value == int(value) else f"{value:.10g}"
