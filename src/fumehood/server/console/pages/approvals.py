"""Approvals: calls that wait for a person, with all of their code and what they could reach; and the answer to them."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup
from starlette.responses import Response

from fumehood.audit.records import Record
from fumehood.characters import is_hidden
from fumehood.errors import DeniedError, UsageError
from fumehood.server.console.badges import badge_fragments
from fumehood.server.console.code_view import approval_lines
from fumehood.server.console.news import Fragment
from fumehood.server.console.page_request import NoSuchPageError, PageRequest, StalePageError
from fumehood.server.console.rendering import render
from fumehood.server.console.routes import ConsoleRoute, PageModule
from fumehood.server.console.sessions import NOT_KNOWN
from fumehood.server.identity.principals import Scope
from fumehood.tools.approvals import AnsweredError, ApprovalAnswer, ApprovalRequest, State
from fumehood.tools.approvals import pages as shown_pages
from fumehood.tools.calls import ToolCall
from fumehood.tools.tool import Risk

_SCOPES = (Scope.APPROVE,)
_WIDTH = 1_000_000  # the browser folds
_MOST_ANSWERED = 30
_MOST_REASON = 2000


async def show_list(page: PageRequest) -> Response:
    after = (await page.blocking(page.source.log.head)).seq
    waiting, answered = await page.blocking(lambda: _listed(page))
    return await page.page("approvals.html", view="approvals", after=after, requests=waiting, answered=answered)


def _listed(page: PageRequest) -> tuple[list[ApprovalRequest], list[ApprovalRequest]]:
    """Those that wait, the oldest first, and the newest of those that do not."""
    found = page.source.approvals().find(page.source.trail(page.principal), only_open=False)
    waiting = [each for each in found if each.state is State.ASKED]
    return waiting, [each for each in reversed(found) if each.state is not State.ASKED][:_MOST_ANSWERED]


async def show(page: PageRequest) -> Response:
    request = await _find(page)
    await page.viewed("approval", request.id, request.asked_by)
    after = (await page.blocking(page.source.log.head)).seq
    return await _page(page, request, after)


async def _page(page: PageRequest, request: ApprovalRequest, after: int) -> Response:
    call = request.call
    code, edited, reach = await page.blocking(lambda: _drawn(request))
    return await page.page(
        "approval.html",
        view=f"approval:{request.id}",
        after=after,
        request=request,
        code=code,
        edited=edited,
        reach=reach,
        lines=call.text.count("\n") + 1,
        warnings=shown_pages.warnings(call),
        is_own=not page.source.is_local and page.is_own(request.asked_by),
        can_edit=not any(is_hidden(character) and character not in "\n\t" for character in call.text),
        needs_fresh=_needs_fresh(page, request),
        knows_sign_in=page.session.signed_in != NOT_KNOWN,
    )


def _drawn(request: ApprovalRequest) -> tuple[Markup, Markup | None, Sequence[str]]:
    """What was asked, what was approved instead, and what either could reach."""
    edited = _code(request.edited) if request.edited else None
    return _code(request.call), edited, shown_pages.reach(request.policy)


def _code(call: ToolCall) -> Markup:
    return approval_lines(shown_pages.code_lines(call, _WIDTH))


def _needs_fresh(page: PageRequest, request: ApprovalRequest) -> bool:
    return not page.source.is_local and request.call.risk is Risk.HIGH and not page.session.is_fresh


async def answer(page: PageRequest) -> Response:
    """Yes or no to exactly what was shown. The first answer counts."""
    request = await _find(page)
    await page.source.check_other(page.principal, request.asked_by)
    if page.form.get("digest") != request.call.digest:
        raise StalePageError("What the page has shown is not what is asked. Look at it again.")
    verdict = page.form.get("verdict", "")
    given = _answer(page, request, verdict)
    if given.approved and _needs_fresh(page, request):
        raise DeniedError("This is of high risk: sign in again to approve it.")
    trail = page.source.trail(page.principal)
    try:
        await page.blocking(lambda: page.source.approvals().answer(request.id, given, trail))
    except AnsweredError as error:
        raise StalePageError(f"It was answered before: {error.request.told()}.") from None
    return page.go(f"/approvals/{request.id}")


def _answer(page: PageRequest, request: ApprovalRequest, verdict: str) -> ApprovalAnswer:
    reason, by = page.form.get("reason", "").strip(), page.principal.name
    if len(reason) > _MOST_REASON:
        raise UsageError(f"A reason has at most {_MOST_REASON} characters.")
    match verdict:
        case "approve":
            return ApprovalAnswer(approved=True, reason=reason, by=by)
        case "deny":
            return ApprovalAnswer(approved=False, reason=reason, by=by)
        case "edit":
            # Browsers send line ends of their own.
            edited = request.call.edited(page.form.get("text", "").replace("\r\n", "\n"))
            return ApprovalAnswer(approved=True, reason=reason, by=by, arguments=edited.arguments)
        case _:
            raise UsageError("Approve it, deny it, or approve it with changes.")


async def _find(page: PageRequest) -> ApprovalRequest:
    wanted = page.path("id")
    try:
        found = await page.blocking(lambda: page.source.approvals().get(wanted, page.source.trail(page.principal)))
    except UsageError:
        raise NoSuchPageError from None
    if found.id != wanted:  # the beginning of an id is for people at a terminal
        raise NoSuchPageError
    return found


class ApprovalListView:
    def __init__(self, page: PageRequest) -> None:
        self._page, self.key = page, "approvals"

    async def fragments(self, record: Record) -> Sequence[Fragment]:
        if not record.kind.startswith("approval."):
            return ()
        page = self._page
        waiting, answered = await page.blocking(lambda: _listed(page))
        return (
            *await badge_fragments(page, record),
            Fragment(render("fragments/approval_list.html", requests=waiting)),
            Fragment(render("fragments/answered_list.html", answered=answered)),
        )


class ApprovalView:
    """A page that was answered elsewhere says so, and cannot answer any more."""

    def __init__(self, page: PageRequest, identifier: str) -> None:
        self._page, self._id = page, identifier
        self.key = f"approval {identifier}"

    async def fragments(self, record: Record) -> Sequence[Fragment]:
        page = self._page
        found = list(await badge_fragments(page, record))
        if record.kind.startswith("approval.") and record.data.get("request") == self._id:
            trail = page.source.trail(page.principal)
            request = await page.blocking(lambda: page.source.approvals().get(self._id, trail))
            found.append(Fragment(render("fragments/approval_state.html", request=request)))
            if request.state is not State.ASKED:
                found.append(Fragment(render("fragments/approval_over.html", request=request)))
        return found


async def _list_view(page: PageRequest) -> ApprovalListView:
    return ApprovalListView(page)


async def _view(page: PageRequest) -> ApprovalView:
    return ApprovalView(page, page.query("view").partition(":")[2])


MODULE = PageModule(
    (
        ConsoleRoute("/approvals", show_list, _SCOPES, nav="Approvals", key="a"),
        ConsoleRoute("/approvals/{id}", show, _SCOPES),
        ConsoleRoute("/approvals/{id}", answer, _SCOPES, "POST"),
    ),
    {"approvals": (_SCOPES, _list_view), "approval": (_SCOPES, _view)},
)
