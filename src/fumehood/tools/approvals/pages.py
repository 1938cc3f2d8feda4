"""What an approver reads: the call, what it could reach, and by when. Lines of text, pure."""

from __future__ import annotations

from datetime import datetime

from fumehood.characters import one_line
from fumehood.policy import Policy, describe
from fumehood.tools.approvals.display import Line, Piece, draw, notes
from fumehood.tools.approvals.requests import ApprovalRequest
from fumehood.tools.calls import ToolCall

GUTTER = 7
_REACH = {
    "filesystem.mounts": "files",
    "filesystem.outputs": "outputs",
    "network": "network",
    "secrets": "secrets",
    "commands.allow": "commands",
    "commands.deny": "but not",
}
_SILENT = ("secrets: none", "commands.deny: none")
_LIMITS = ("timeout:", "memory:", "cpus:", "processes:", "disk:")
_DIGEST_CHARACTERS = 12


def code_lines(call: ToolCall, width: int) -> list[Line]:
    """All of the call: its code with numbers, and below it the other arguments."""
    lines = draw(call.text, max(20, width - GUTTER), call.language)
    if call.code is None or not call.others:
        return lines
    below = draw(ToolCall.readable(call.others), max(20, width - GUTTER))
    return [*lines, Line(None, (Piece("with"),)), *(Line(None, line.pieces) for line in below)]


def reach(policy: Policy) -> list[str]:
    """What a call could reach under this policy, and how much it could use."""
    told = describe(policy)
    limits = [line.replace(": ", " ") for line in told if line.startswith(_LIMITS)]
    found = [line.partition(": ") for line in told if line not in _SILENT]
    return [*(_row(_REACH[key], what) for key, _, what in found if key in _REACH), _row("limits", ", ".join(limits))]


def summary(request: ApprovalRequest, call: ToolCall) -> list[str]:
    """Who asks for what under which policy."""
    policy = one_line(request.policy_name or "without a name")
    asked = datetime.fromtimestamp(request.asked_at).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    expires = datetime.fromtimestamp(request.expires_at).astimezone().strftime("%H:%M:%S")
    tenant = f" of {one_line(request.tenant)}" if request.tenant else ""
    return [
        _row("asked by", f"{one_line(request.asked_by)}{tenant} at {asked}, expires at {expires}"),
        _row("call", f"{short(call.digest)}, risk {call.risk}"),
        _row("policy", f"{policy}, {short(call.policy_digest)}; it could use"),
        *(f"  {one_line(line)}" for line in reach(request.policy)),
        *(_row("BEWARE", note) for note in warnings(call)),
    ]


def warnings(call: ToolCall) -> list[str]:
    """About everything of the call that `code_lines` shows."""
    if call.code is None:
        return notes(call.text)
    others = notes(ToolCall.readable(call.others), is_numbered=False)
    return [*notes(call.text), *(f"other arguments: {note}" for note in others)]


def details(request: ApprovalRequest, call: ToolCall) -> list[str]:
    """Everything else: the policy key by key, and digests in full."""
    return [
        f"request: {request.id}",
        f"digest: {call.digest}",
        f"policy digest: {call.policy_digest}",
        *(one_line(line) for line in describe(request.policy)),
    ]


def _row(label: str, text: str) -> str:
    return f"{label + ':':10} {text}"


def short(digest: str) -> str:
    return digest.removeprefix("sha256:")[:_DIGEST_CHARACTERS]
