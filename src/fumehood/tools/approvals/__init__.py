"""Calls that a person must approve.

    gate         does it need a yes (policy.approvals), ask, wait, use it up
    store        what may follow what, one step at a time, each told to the audit log (database: in SQLite)
    review       a reviewer answers first, where the policy lets it
    requests     requests and answers as data
    terminal     asks at a terminal (display: what is shown, and that nothing hides in it)

    approvals = Approvals(policy, ask=callback, trail=trail)
    call = await approvals.approve(ToolCall("python", {"code": code}, policy.digest, code="code"))

A yes is for one digest: this tool, these exact arguments, this policy. It is used once, expires, and is void when the
policy changes. No answer is a no.
"""

from fumehood.tools.approvals.gate import Approvals, Ask, Listener
from fumehood.tools.approvals.requests import ApprovalAnswer, ApprovalRequest, State
from fumehood.tools.approvals.review import Review, Reviewer
from fumehood.tools.approvals.store import AnsweredError, ApprovalStore

__all__ = [
    "AnsweredError",
    "ApprovalAnswer",
    "ApprovalRequest",
    "ApprovalStore",
    "Approvals",
    "Ask",
    "Listener",
    "Review",
    "Reviewer",
    "State",
]
