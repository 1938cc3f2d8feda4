"""Tasks of agents, each as a story: what was asked, what the model said and called, the code, results and costs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice, takewhile

from starlette.responses import Response

from fumehood.audit.records import Record
from fumehood.audit.store import Query
from fumehood.server.console.badges import badge_fragments
from fumehood.server.console.news import Fragment
from fumehood.server.console.page_request import NoSuchPageError, PageRequest, record_number
from fumehood.server.console.rendering import render
from fumehood.server.console.routes import ConsoleRoute, PageModule
from fumehood.server.console.run_rows import who_of
from fumehood.server.console.story import StoryStep, StoryTeller
from fumehood.server.console.task_story import TaskMembership, TaskRow, find_task, ids_of, list_tasks, task_records
from fumehood.server.identity.principals import Scope

_SCOPES = (Scope.RUN, Scope.AUDIT)
_MOST_ROWS = 100
_MOST_STEPS = 500
_UNTOLD = frozenset({"run.started", "approval.used", "filter.acted"})
"""Records of a task that add nothing to its story; its runs have them."""


def _whose(page: PageRequest) -> str | None:
    return None if page.sees_all else page.principal.name


async def show_list(page: PageRequest) -> Response:
    log = page.source.log
    after = (await page.blocking(log.head)).seq
    rows = await page.blocking(lambda: list_tasks(log, _MOST_ROWS, _whose(page)))
    return await page.page("tasks.html", view="tasks", after=after, tasks=rows)


async def show(page: PageRequest) -> Response:
    log = page.source.log
    after = (await page.blocking(log.head)).seq
    row = await _visible(page, page.path("id"))
    await page.viewed("task", row.id, row.who)
    since = record_number(page.query("after")) or 0
    teller = StoryTeller(log, await page.changeable_policies())
    members = TaskMembership(row.id)
    steps = await page.blocking(lambda: _part(teller, task_records(log, row, members), since, after))
    rest = steps.pop().seq if len(steps) > _MOST_STEPS else 0
    return await page.page(
        "task.html",
        view="" if rest else f"task:{row.id}",  # what is new stands at the end
        after=after,
        task=members.so_far(row),
        steps=steps,
        since=since,
        rest=rest,
        is_run_page=False,
    )


def _part(teller: StoryTeller, records: Iterator[Record], since: int, until: int) -> list[StoryStep]:
    """The steps of a page, and one more if there is another page."""
    known = takewhile(lambda record: record.seq <= until, records)
    told = (record for record in known if record.kind not in _UNTOLD and record.seq >= since)
    steps = teller.steps(list(islice(told, _MOST_STEPS + 1)))
    deque(told, 0)  # what a task has used so far is counted along the way
    return steps


async def _visible(page: PageRequest, task: str) -> TaskRow:
    row = await page.blocking(lambda: find_task(page.source.log, task)) if task.isascii() else None
    if row is None or not (page.sees_all or page.is_own(row.who)):
        raise NoSuchPageError
    return row


class TaskListView:
    def __init__(self, page: PageRequest) -> None:
        self._page = page
        self.key = f"tasks {_whose(page) or ''} {page.may(Scope.APPROVE)}"

    async def fragments(self, record: Record) -> Sequence[Fragment]:
        page = self._page
        found = list(await badge_fragments(page, record))
        if record.kind in ("task.started", "task.ended") and (page.sees_all or page.is_own(who_of(record))):
            task = str(ids_of(record).get("task", ""))
            row = await page.blocking(lambda: find_task(page.source.log, task))
            if row is not None:
                found.append(Fragment(render("fragments/task_row.html", task=row), "tasks", most=_MOST_ROWS))
        return found


class TaskView:
    """What belongs to the task is known from its start on."""

    def __init__(self, page: PageRequest, row: TaskRow, changeable: frozenset[str]) -> None:
        self._page, self._row = page, row
        self._teller = StoryTeller(page.source.log, changeable)
        self._members, self._seen = TaskMembership(row.id), row.seq - 1
        self.key = f"task {row.id} {page.may(Scope.APPROVE)} {bool(changeable)}"

    async def fragments(self, record: Record) -> Sequence[Fragment]:
        page = self._page
        found = list(await badge_fragments(page, record))
        if not await page.blocking(lambda: self._is_member(record)):
            return found
        if record.kind not in _UNTOLD:
            found.append(Fragment(await page.blocking(lambda: self._drawn(record)), "steps", "end"))
        if record.kind in ("task.ended", "model.answered", "tool.called"):
            row = await page.blocking(lambda: find_task(page.source.log, self._row.id))
            if row is not None:
                found.append(Fragment(render("fragments/task_head.html", task=self._members.so_far(row))))
        return found

    def _drawn(self, record: Record) -> str:
        return render("fragments/step.html", step=self._teller.step(record), is_run_page=False)

    def _is_member(self, record: Record) -> bool:
        """Also of what came before: others may have made the messages of some records for us."""
        for each in self._page.source.log.find(Query(after=self._seen, limit=max(0, record.seq - self._seen))):
            if each.seq < record.seq:
                self._members.has(each)
        self._seen = record.seq
        return self._members.has(record)


async def _list_view(page: PageRequest) -> TaskListView:
    return TaskListView(page)


async def _view(page: PageRequest) -> TaskView:
    row = await _visible(page, page.query("view").partition(":")[2])
    await page.goes_on_viewing("task", row.id, row.who)
    return TaskView(page, row, await page.changeable_policies())


MODULE = PageModule(
    (
        ConsoleRoute("/tasks", show_list, _SCOPES, nav="Tasks", key="t"),
        ConsoleRoute("/tasks/{id}", show, _SCOPES),
    ),
    {"tasks": (_SCOPES, _list_view), "task": (_SCOPES, _view)},
)
