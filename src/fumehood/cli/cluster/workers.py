"""`hood workers`: the workers of a server's cluster; for those who run it, on its host."""

from __future__ import annotations

import argparse

from fumehood.characters import one_line
from fumehood.cli.arguments import Parser
from fumehood.cli.output import say
from fumehood.cli.server.calls import Answer, PlaceArguments, add_place, call


class Arguments(PlaceArguments):
    drain: str | None


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="hood workers", description="The workers of a server's cluster, as it knows them.")
    parser.add_argument("--drain", metavar="NAME", help="take one out of service: it ends when it has nothing open")
    add_place(parser)
    return parser


def execute(arguments: list[str]) -> int:
    chosen = build_parser().parse_args(arguments, namespace=Arguments())
    if chosen.drain is not None:
        call(chosen, "POST", "workers", chosen.drain, "drain")
        print(f"{chosen.drain}: opens no more sandboxes, and ends when it has none")
        return 0
    workers = call(chosen, "GET", "workers")
    for worker in workers:
        print(one_line(_line(worker)))
    if not workers:
        say("there is no worker; `hood cluster token NAME` lets a host join")
    return 0


def _line(worker: Answer) -> str:
    used = worker["slots"] - worker["free"]
    labels = " ".join(f"{key}={value}" for key, value in worker["labels"].items())
    tenants = f"  for {', '.join(worker['tenants'])}" if worker["tenants"] else ""
    failure = f"  last failure: {worker['failure']}" if worker["failure"] else ""
    backends = " ".join(worker["backends"])
    room = f"{used} of {worker['slots']} slots"
    return f"{worker['name']}  {worker['state']}  {backends}  {room}  {labels}{tenants}{failure}"
