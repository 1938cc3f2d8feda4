"""Approval of a `hood run`, which the policy may demand as for any call of a tool, asked for at the terminal."""

from __future__ import annotations

from dataclasses import dataclass

from fumehood.audit import AuditLog, Trail
from fumehood.cli.output import say
from fumehood.policy import Policy, format_duration
from fumehood.sandbox.request import RunOptions
from fumehood.tools.approvals import ApprovalRequest, Approvals
from fumehood.tools.approvals.terminal import TerminalPrompt
from fumehood.tools.calls import ToolCall

_SHELLS = ("sh", "bash")


@dataclass(frozen=True, slots=True)
class ApprovedRun:
    """The code that may run, perhaps edited at the prompt, and the trail that ties the run to the approval."""

    code: bytes
    trail: Trail


async def ask(policy: Policy, code: bytes, options: RunOptions, *, session: bool) -> ApprovedRun:
    """Raises NotApprovedError without an approval. Where there is no terminal, `hood approvals` can still answer."""
    call = as_call(policy, code, options, session=session)
    trail = Trail(AuditLog.default()).within(call=call.digest.removeprefix("sha256:")[:16])
    prompt = Prompt()
    approvals = Approvals(policy, ask=prompt.ask, trail=trail, listener=prompt)
    approved = await approvals.approve(call)
    return ApprovedRun(approved.text.encode("utf-8", "surrogateescape"), trail)


def as_call(policy: Policy, code: bytes, options: RunOptions, *, session: bool) -> ToolCall:
    """Everything that makes a difference to what happens, but standard input, which is not known yet."""
    language = options.get("language", "python")
    tool, name = ("shell", "command") if language in _SHELLS else (language, "code")
    arguments: dict[str, object] = {name: code.decode("utf-8", "surrogateescape")}
    if tool != language:
        arguments["language"] = language
    if session:
        arguments["session"] = True
    for key in ("name", "args", "env"):
        if value := options.get(key):
            arguments[key] = value
    return ToolCall(tool, arguments, policy.digest, code=name, language=language)


class Prompt(TerminalPrompt):
    """A prompt at the terminal; where there is none, a message says which command answers instead."""

    def waiting(self, request: ApprovalRequest) -> None:
        if not self.is_there():
            left = format_duration(round(request.expires_at - request.asked_at))
            say(
                f"{request.call.tool} needs an approval and there is no terminal to ask at; waiting {left} for "
                f"`hood approvals approve {request.id}`"
            )
