"""`hood whoami`: where sandboxes are opened, and as whom."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import cast

from fumehood.characters import one_line
from fumehood.cli.arguments import Parser
from fumehood.remote.place import find_server
from fumehood.sandbox.async_sandbox import PLACE


class Arguments(argparse.Namespace):
    json: bool


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="hood whoami", description="Where sandboxes are opened, and as whom. Asks the server.")
    parser.add_argument("--json", action="store_true", help="as JSON")
    return parser


def execute(arguments: list[str]) -> int:
    chosen = build_parser().parse_args(arguments, namespace=Arguments())
    server = find_server()
    who: Mapping[str, object] = {} if server is None else server.whoami()
    place = PLACE if server is None else server.url
    print(json.dumps({"place": place, **who}) if chosen.json else in_words(place, who))
    return 0


def in_words(place: str, who: Mapping[str, object]) -> str:
    if not who:
        return f"sandboxes are opened on {place}"
    scopes = ", ".join(map(str, cast("list[object]", who.get("scopes") or [])))
    return one_line(f"sandboxes are opened at {place}, as {who.get('principal')} of {who.get('tenant')} ({scopes})")
