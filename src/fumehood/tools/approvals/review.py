"""A reviewer: answers routine questions in the place of a person, where the policy says that it may.

Its answer is recorded as its own. One that fails, does not answer in time or leaves it open changes nothing: a person
is asked, as without it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

import anyio

from fumehood.keywords import known_fields
from fumehood.tools.approvals.events import ApprovalReviewed
from fumehood.tools.approvals.requests import ApprovalAnswer, ApprovalRequest

REVIEW_SECONDS = 120.0
_MOST_CHARACTERS = 500

Verdict = Literal["approve", "deny", "ask_person"]


@known_fields
@dataclass(frozen=True, slots=True)
class Review:
    """What a reviewer says of one request. `ask_person` leaves it to a person."""

    verdict: Verdict
    reason: str
    reviewer: str = "function"
    """Its name, for the log."""
    model: str | None = None
    cost: float | None = None
    """In US dollars; None when it is not known."""
    tokens: int = 0

    def answer(self) -> ApprovalAnswer | None:
        """None if a person is to decide."""
        if self.verdict == "ask_person":
            return None
        by = f"reviewer {self.reviewer}"
        return ApprovalAnswer(approved=self.verdict == "approve", reason=self.reason[:_MOST_CHARACTERS], by=by)

    def event(self, request: ApprovalRequest) -> ApprovalReviewed:
        call, reason = request.call, self.reason[:_MOST_CHARACTERS]
        cost = None if self.cost is None else f"{self.cost:.6f}"
        about = self.reviewer, self.verdict, reason, self.model, cost, self.tokens
        return ApprovalReviewed(request.id, call.tool, call.digest, *about)


Reviewer = Callable[[ApprovalRequest], Awaitable[Review]]
"""A function of the application, or a `fumehood.agents.ModelReviewer`."""


async def ask_reviewer(reviewer: Reviewer, request: ApprovalRequest) -> Review:
    """Its review. Whatever goes wrong, a person is to decide."""
    try:
        with anyio.fail_after(REVIEW_SECONDS):
            review = await reviewer(request)
    except TimeoutError:
        return Review("ask_person", f"the reviewer did not answer in {REVIEW_SECONDS:g} seconds")
    except Exception as error:
        return Review("ask_person", f"the reviewer failed: {type(error).__name__}: {error}")
    # Not by truth: what is no review is no yes.
    if type(review) is not Review or review.verdict not in ("approve", "deny", "ask_person"):
        return Review("ask_person", f"the reviewer answered with {type(review).__name__}, which is no review")
    return review
