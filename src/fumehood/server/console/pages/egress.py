"""Egress: what went out and what was denied, by host and rule, with the smallest change that would let it out."""

from __future__ import annotations

from starlette.responses import Response

from fumehood.audit.records import Record
from fumehood.server.console.egress_rows import MOST_LOOKED_AT, egress_rows
from fumehood.server.console.page_request import PageRequest
from fumehood.server.console.routes import ConsoleRoute, PageModule
from fumehood.server.console.run_rows import who_of
from fumehood.server.identity.principals import Scope

_SCOPES = (Scope.RUN, Scope.AUDIT)
_MOST_ROWS = 200


async def show(page: PageRequest) -> Response:
    wanted = page.query("host").strip().lower()
    log = page.source.log
    rows = await page.blocking(lambda: egress_rows(log, lambda record: is_shown(page, record), host=wanted))
    return await page.page(
        "egress.html",
        denied=[row for row in rows if not row.is_allowed][:_MOST_ROWS],
        allowed=[row for row in rows if row.is_allowed][:_MOST_ROWS],
        host=wanted,
        looked_at=MOST_LOOKED_AT,
        known=await page.source.policy_names() if page.may(Scope.RUN, Scope.POLICIES) else frozenset[str](),
        changeable=await page.changeable_policies(),
    )


def is_shown(page: PageRequest, record: Record) -> bool:
    """Attempts of others are for those who may read the tenant's records."""
    return page.sees_all or page.is_own(who_of(record))


MODULE = PageModule((ConsoleRoute("/egress", show, _SCOPES, nav="Egress", key="e"),), {})
