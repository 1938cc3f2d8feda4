"""`hood keeper`: whether one runs, and how to end it."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping
from contextlib import closing
from typing import Any

import fumehood_client
from fumehood.cli import exitcodes
from fumehood.cli.arguments import Parser
from fumehood.policy import format_duration

_DETAILS = """\
The keeper is a process of your own that does `hood run` in sandboxes that are
warm. The first `hood run` leaves it behind, and it ends when it was not needed
for 10 minutes. FUMEHOOD_KEEPER=off does without it; FUMEHOOD_KEEPER=on has it
for root and where CI is set, too.

exit code of status: 0 if one runs, 1 if not
"""


class Arguments(argparse.Namespace):
    verb: str


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="hood keeper", description="The process that makes `hood run` quick: is it there, end it.", epilog=_DETAILS
    )
    parser.add_argument("verb", metavar="VERB", choices=("status", "stop"), help="status or stop")
    return parser


def execute(arguments: list[str]) -> int:
    verb = build_parser().parse_args(arguments, namespace=Arguments()).verb
    answer = ask(verb)
    if answer is None:
        reason = fumehood_client.reason_for_none(os.environb)
        print(f"no keeper runs, and none is used: {reason}" if reason else "no keeper runs")
        return exitcodes.PROBLEM_FOUND if verb == "status" else 0
    print(_sentence(verb, answer))
    return 0


def ask(verb: str, environment: Mapping[bytes, bytes] = os.environb) -> dict[str, Any] | None:
    """What the keeper answers; None if there is none, or it does not answer."""
    try:
        with closing(fumehood_client.connect(environment)) as connection:
            connection.send(json.dumps({"do": verb}).encode())
            return json.loads(connection.recv(65536))
    except (OSError, ValueError):
        return None


def _sentence(verb: str, answer: dict[str, Any]) -> str:
    runs = answer["runs"]
    if verb == "stop":
        rest = f" after {runs} {'run' if runs == 1 else 'runs'} under way" if runs else ""
        return f"the keeper (process {answer['process']}) ends{rest}"
    age = format_duration(max(1, round(answer["seconds"])))
    return f"the keeper runs: process {answer['process']}, for {age}, {answer['served']} runs begun, {runs} under way"
