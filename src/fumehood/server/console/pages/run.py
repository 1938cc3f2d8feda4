"""Run: everything that is known of one run, in order, with its code and output as far as the log keeps them."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.responses import Response

from fumehood.audit.records import Record
from fumehood.errors import UsageError
from fumehood.policy import deny_all
from fumehood.server.console.badges import badge_fragments
from fumehood.server.console.news import Fragment
from fumehood.server.console.page_request import NoSuchPageError, PageRequest
from fumehood.server.console.picture_size import NotAPictureError
from fumehood.server.console.pictures import Picture, read_picture
from fumehood.server.console.rendering import render
from fumehood.server.console.routes import ConsoleRoute, PageModule
from fumehood.server.console.run_rows import RunRow, run_records, sum_up
from fumehood.server.console.run_story import records_around
from fumehood.server.console.source import RecordReader
from fumehood.server.console.story import StoryStep, StoryTeller, figures_of, policy_lines
from fumehood.server.identity.principals import Scope

_SCOPES = (Scope.RUN, Scope.AUDIT)
_MOST_FIGURE_BYTES = 8 * 1024 * 1024
_FIGURE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; sandbox; frame-ancestors 'none'",
    "Content-Disposition": "inline",
}


async def show(page: PageRequest) -> Response:
    run = page.path("id")
    row = await _visible(page, run)
    await page.viewed("run", run, row.who)
    log = page.source.log
    after = (await page.blocking(log.head)).seq
    around = await page.blocking(lambda: records_around(log, run))
    teller = StoryTeller(log, await page.changeable_policies())
    known = [record for record in around.records if record.seq <= after]  # the news have what came since
    steps = await page.blocking(lambda: teller.steps(known))
    policy = await page.blocking(lambda: teller.policy_of(row.sandbox))
    lines, usual = policy_lines(policy), policy_lines(deny_all())

    def is_usual(line: str) -> bool:
        return line in usual and not _decided(line, steps)

    return await page.page(
        "run.html",
        view=f"run:{run}",
        after=after,
        run=row,
        task=around.task,
        steps=steps,
        is_run_page=True,
        policy=policy,
        own_lines=[(line, _decided(line, steps)) for line in lines if not is_usual(line)],
        usual_lines=list(filter(is_usual, lines)),
    )


def _decided(line: str, steps: Sequence[StoryStep]) -> bool:
    """Whether the line of the policy is about what was denied."""
    key = line.partition(":")[0]
    return any(step.rule == key or step.rule.startswith(f"{key}.") for step in steps)


async def _visible(page: PageRequest, run: str) -> RunRow:
    """The same answer for another's run as for one that never was."""
    records = await page.blocking(lambda: run_records(page.source.log, run))
    row = sum_up(records) if records else None
    if row is None or not (page.sees_all or page.is_own(row.who)):
        raise NoSuchPageError
    return row


async def show_figure(page: PageRequest) -> Response:
    """A picture that the run displayed or left; nothing else that the log keeps is given out like this."""
    run, digest = page.path("id"), page.path("digest")
    row = await _visible(page, run)
    data = await page.blocking(lambda: _find_figure(page.source.log, run, digest))
    if data is None:
        raise NoSuchPageError
    await page.goes_on_viewing("run", run, row.who)
    picture = await page.blocking(lambda: _read(data))
    return Response(picture.data, media_type=picture.media_type, headers=_FIGURE_HEADERS)


def _find_figure(log: RecordReader, run: str, digest: str) -> bytes | None:
    known = (figure for record in run_records(log, run) for figure in figures_of(record.data))
    return log.attachment(digest) if any(figure.stored == digest for figure in known) else None


def _read(data: bytes) -> Picture:
    if len(data) > _MOST_FIGURE_BYTES:
        raise UsageError("The picture is too large to be shown.")
    try:
        return read_picture(data)
    except NotAPictureError as error:
        raise UsageError(f"This is not shown as a picture: {error}.") from None


class RunView:
    def __init__(self, page: PageRequest, run: str, changeable: frozenset[str]) -> None:
        self._page, self._run = page, run
        self._teller = StoryTeller(page.source.log, changeable)
        self.key = f"run {run} {page.may(Scope.APPROVE)} {bool(changeable)}"

    async def fragments(self, record: Record) -> Sequence[Fragment]:
        page = self._page
        found = list(await badge_fragments(page, record))
        if record.run_id == self._run:
            step = await page.blocking(lambda: self._drawn(record))
            run = await page.blocking(lambda: sum_up(run_records(page.source.log, self._run)))
            found.append(Fragment(step, "steps", "end"))
            found.append(Fragment(render("fragments/run_head.html", run=run)))
        return found

    def _drawn(self, record: Record) -> str:
        return render("fragments/step.html", step=self._teller.step(record), is_run_page=True)


async def _view(page: PageRequest) -> RunView:
    run = page.query("view").partition(":")[2]
    row = await _visible(page, run)
    await page.goes_on_viewing("run", run, row.who)
    return RunView(page, run, await page.changeable_policies())


MODULE = PageModule(
    (ConsoleRoute("/runs/{id}", show, _SCOPES), ConsoleRoute("/runs/{id}/figures/{digest}", show_figure, _SCOPES)),
    {"run": (_SCOPES, _view)},
)
