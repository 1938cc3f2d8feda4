"""Now: what runs, what there is room for, what ended last and what was denied."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.responses import Response

from fumehood.audit.records import Record
from fumehood.server.console.badges import badge_fragments
from fumehood.server.console.news import Fragment
from fumehood.server.console.page_request import PageRequest
from fumehood.server.console.rendering import render
from fumehood.server.console.routes import ConsoleRoute, PageModule
from fumehood.server.console.run_rows import DENIALS, lately, run_records, sum_up, who_of
from fumehood.server.console.source import SandboxRow
from fumehood.server.console.story import StoryTeller
from fumehood.server.identity.principals import Scope

_SCOPES = (Scope.RUN, Scope.AUDIT)
_MOST_ROWS = 40


async def show(page: PageRequest) -> Response:
    log = page.source.log
    after = (await page.blocking(log.head)).seq
    found = await page.blocking(lambda: lately(log, _MOST_ROWS, _whose(page)))
    teller = StoryTeller(log)
    return await page.page(
        "now.html",
        view="now",
        after=after,
        runs=found.runs,
        denials=await page.blocking(lambda: [teller.step(record) for record in found.denials]),
        sandboxes=await _sandboxes(page),
        gauges=await page.source.gauges(),
        origin=f"{page.request.url.scheme}://{page.request.headers.get('host', '')}",
    )


def _whose(page: PageRequest) -> str | None:
    return None if page.sees_all else page.principal.name


async def _sandboxes(page: PageRequest) -> Sequence[SandboxRow]:
    return [each for each in await page.source.open_sandboxes() if page.sees_all or page.is_own(each.opened_by)]


class NowView:
    def __init__(self, page: PageRequest) -> None:
        self._page, self._teller = page, StoryTeller(page.source.log)
        self.key = f"now {_whose(page) or ''} {page.may(Scope.APPROVE)}"

    async def fragments(self, record: Record) -> Sequence[Fragment]:
        page = self._page
        if not page.sees_all and not page.is_own(who_of(record)):
            return ()
        found = list(await badge_fragments(page, record))
        if record.run_id is not None:
            run = await page.blocking(lambda: sum_up(run_records(page.source.log, str(record.run_id))))
            found.append(Fragment(render("fragments/run_row.html", run=run), "runs", most=_MOST_ROWS))
        if record.kind in DENIALS:
            step = await page.blocking(lambda: self._teller.step(record))
            found.append(Fragment(render("fragments/denial_row.html", step=step), "denials", most=20))
        if record.kind.startswith("sandbox."):
            rows = render("fragments/sandboxes.html", sandboxes=await _sandboxes(page))
            gauges = render("fragments/gauges.html", gauges=await page.source.gauges())
            found += [Fragment(rows), Fragment(gauges)]
        return found


async def _view(page: PageRequest) -> NowView:
    return NowView(page)


MODULE = PageModule(
    (ConsoleRoute("/", show, _SCOPES, nav="Now", key="n"),),
    {"now": (_SCOPES, _view)},
)
