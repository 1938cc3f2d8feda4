"""`hood approvals VERB`: calls that wait for a person's approval, and the answer to them."""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Callable
from datetime import datetime
from functools import partial

from fumehood.audit import AuditLog, Trail
from fumehood.audit.log import current_user
from fumehood.characters import cut, one_line
from fumehood.cli import exitcodes
from fumehood.cli.arguments import Parser
from fumehood.cli.output import BOLD, GREEN, RED, YELLOW, paint, say
from fumehood.tools.approvals import AnsweredError, ApprovalAnswer, ApprovalRequest, ApprovalStore, State, pages
from fumehood.tools.calls import ToolCall

_DETAILS = """\
Requests are in $FUMEHOOD_APPROVALS, else in the user's state folder. ID is the
id of a request, or how it begins. The first answer counts; a later one
ends with exit code 1. `approve` is for exactly what `show` shows.
"""
_COLOURS = {State.ASKED: YELLOW, State.APPROVED: GREEN, State.USED: GREEN}
_ID_CHARACTERS = 12


class Arguments(argparse.Namespace):
    act: Callable[[Arguments], int]
    id: str
    all: bool
    json: bool
    reason: str


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="hood approvals", description="Calls that wait for a person's approval.", epilog=_DETAILS)
    parser.set_defaults(act=_list, all=False, json=False)
    verbs = parser.add_subparsers(metavar="[VERB]", help="list, if none is given")
    listing = verbs.add_parser("list", help="what waits for an answer", description="What waits, the oldest first.")
    listing.add_argument("--all", action="store_true", help="also what is answered, used or over")
    listing.set_defaults(act=_list)
    show = verbs.add_parser("show", help="all of one request", description="The call, and what it could reach.")
    show.set_defaults(act=_show)
    approve = verbs.add_parser("approve", help="say yes", description="Say yes: the call may be made once.")
    approve.set_defaults(act=partial(_answer, approved=True))
    deny = verbs.add_parser("deny", help="say no", description="Say no.")
    deny.set_defaults(act=partial(_answer, approved=False))
    for verb in (show, approve, deny):
        verb.add_argument("id", metavar="ID", help="which request")
    for verb in (listing, show):
        verb.add_argument("--json", action="store_true", help="as JSON")
    for verb in (approve, deny):
        verb.add_argument("--reason", default="", metavar="TEXT", help="why; kept, and passed on to the caller")
    return parser


def execute(arguments: list[str]) -> int:
    chosen = build_parser().parse_args(arguments, namespace=Arguments())
    return chosen.act(chosen)


def _list(chosen: Arguments) -> int:
    found = ApprovalStore().survey(_trail(), only_open=not chosen.all)
    requests = [each for each in found if isinstance(each, ApprovalRequest)]
    if chosen.json:
        print(json.dumps([_as_data(request) for request in requests]))
    else:
        for request in requests:
            print(_line(request))
    damaged = [each for each in found if not isinstance(each, ApprovalRequest)]
    for each in damaged:
        say(one_line(str(each)))
    if not found and not chosen.json:
        say("nothing waits for an answer" if not chosen.all else "no approval was asked for")
    return exitcodes.PROBLEM_FOUND if damaged else 0


def _show(chosen: Arguments) -> int:
    request = ApprovalStore().get(chosen.id, _trail())
    if chosen.json:
        print(json.dumps(_as_data(request)))
        return 0
    print(paint(f"{one_line(request.call.tool)}   {request.id}", BOLD))
    print(f"{'state:':10} {_painted(request)}, {one_line(request.told())}")
    for line in pages.summary(request, request.call):
        print(line)
    _print_code(request.call)
    if request.edited is not None:
        print(paint("approved instead", BOLD))
        _print_code(request.edited)
    return 0


def _print_code(call: ToolCall) -> None:
    for line in pages.code_lines(call, shutil.get_terminal_size().columns):
        print(f"{'' if line.number is None else line.number:>4} | {line}".rstrip())


def _answer(chosen: Arguments, *, approved: bool) -> int:
    store, trail = ApprovalStore(), _trail()
    request = store.get(chosen.id, trail)
    try:
        request = store.answer(request.id, ApprovalAnswer(approved=approved, reason=chosen.reason), trail)
    except AnsweredError as error:
        say(str(error))
        return exitcodes.PROBLEM_FOUND
    print(f"{request.id}: {one_line(request.told())}")
    return 0


def _trail() -> Trail:
    return Trail(AuditLog.default(), who=current_user())


def _line(request: ApprovalRequest) -> str:
    asked = _clock(request.asked_at)
    front = f"{request.id[:_ID_CHARACTERS]}  {asked}  {_painted(request)}  "
    text = one_line(f"{request.call.tool}: {' '.join(request.call.text.split())}")
    room = max(20, shutil.get_terminal_size().columns - _ID_CHARACTERS - len(asked) - 15)
    return front + cut(text, room)


def _painted(request: ApprovalRequest) -> str:
    return paint(f"{request.state:9}", _COLOURS.get(request.state, RED))


def _clock(moment: float) -> str:
    return datetime.fromtimestamp(moment).astimezone().strftime("%m-%d %H:%M:%S")


def _as_data(request: ApprovalRequest) -> dict[str, object]:
    return {
        "id": request.id,
        "state": request.state,
        "tool": request.call.tool,
        "risk": request.call.risk,
        "arguments": request.call.arguments,
        "digest": request.call.digest,
        "policy_digest": request.call.policy_digest,
        "policy_name": request.policy_name,
        "asked_by": request.asked_by,
        "tenant": request.tenant,
        "asked_at": _moment(request.asked_at),
        "expires_at": _moment(request.expires_at),
        "answered_by": request.answered_by,
        "answered_at": None if request.answered_at is None else _moment(request.answered_at),
        "reason": request.reason,
        "approved_arguments": None if request.edited is None else request.edited.arguments,
        "approved_digest": None if request.edited is None else request.edited.digest,
    }


def _moment(moment: float) -> str:
    return datetime.fromtimestamp(moment).astimezone().isoformat(timespec="seconds")
