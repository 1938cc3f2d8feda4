"""What the head of every page shows: how many calls wait for an answer."""

from __future__ import annotations

from collections.abc import Sequence

from fumehood.audit.records import Record
from fumehood.server.console.news import Fragment
from fumehood.server.console.page_request import PageRequest
from fumehood.server.console.rendering import render
from fumehood.server.identity.principals import Scope
from fumehood.tools.approvals import State


def count_waiting(page: PageRequest) -> int:
    """Blocks."""
    found = page.source.approvals().find(page.source.trail(page.principal))
    return sum(1 for request in found if request.state is State.ASKED)


async def badge_fragments(page: PageRequest, record: Record) -> Sequence[Fragment]:
    """Nothing for those who may not answer: how many others wait is not theirs to know."""
    if not page.may(Scope.APPROVE) or not record.kind.startswith("approval."):
        return ()
    waiting = await page.blocking(lambda: count_waiting(page))
    return (Fragment(render("fragments/waiting.html", waiting=waiting)),)
