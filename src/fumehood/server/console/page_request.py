"""A request for a page of somebody who is signed in, and the answers to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from fumehood.audit.events import AuditEvent
from fumehood.errors import UsageError
from fumehood.frozen import frozen
from fumehood.server.console.rendering import render
from fumehood.server.console.routes import ROOT
from fumehood.server.console.sessions import ConsoleSession
from fumehood.server.console.source import ConsoleSource
from fumehood.server.identity.principals import Principal, Scope

T = TypeVar("T")
_MOST_FORM_BYTES = 1024 * 1024
_MOST_FIELDS = 50
_MOST_DIGITS = 15


@frozen
class ConsoleViewed(AuditEvent):
    """Somebody has seen code or output of others in the console, or taken records out of it."""

    kind = "console.viewed"

    what: str
    """`run`, `task`, `approval`, `record`, `export`; `egress` of a whole tenant, by those who run the server."""
    subject: str
    of: str | None
    """Whose it is."""


class NoSuchPageError(UsageError):
    """The same for what is not there, what is another tenant's, and what the viewer may not see."""

    def __init__(self) -> None:
        super().__init__("There is nothing here, or it is not for you to see.")


class StalePageError(UsageError):
    """The page is not of this session, or shows what is not so any more."""


class PageRequest:
    def __init__(
        self, request: Request, session: ConsoleSession, source: ConsoleSource, nav: tuple[object, ...]
    ) -> None:
        self.request, self.session, self.source, self._nav = request, session, source, nav
        self.form: Mapping[str, str] = {}
        self.waiting = 0
        """How many calls wait for an answer, for those who may give one."""

    @property
    def principal(self) -> Principal:
        return self.session.principal

    def may(self, *scopes: Scope) -> bool:
        return not scopes or any(self.principal.may(scope) for scope in scopes)

    @property
    def sees_all(self) -> bool:
        """Runs of others, too."""
        return self.may(Scope.AUDIT)

    async def changeable_policies(self) -> frozenset[str]:
        """Names of policies of which the viewer may propose changes."""
        return await self.source.policy_names() if self.may(Scope.POLICIES) else frozenset()

    def is_own(self, who: str) -> bool:
        return who == self.principal.name

    def path(self, name: str) -> str:
        return str(self.request.path_params[name])

    def query(self, name: str) -> str:
        return self.request.query_params.get(name, "")

    async def blocking(self, work: Callable[[], T]) -> T:
        return await self.source.blocking(work)

    async def viewed(self, what: str, subject: str, of: str | None) -> None:
        """Before code or output is shown: the record is there first. What is one's own is not recorded."""
        if of is None or not self.is_own(of):
            await self.source.trail(self.principal).write(ConsoleViewed(what, subject, of))
            self.source.views.add((self.principal.name, what, subject))  # not if the record could not be written

    async def goes_on_viewing(self, what: str, subject: str, of: str | None) -> None:
        """Of a stream, which a page opens again and again: recorded if nobody of this name has loaded the page."""
        if (self.principal.name, what, subject) not in self.source.views:
            await self.viewed(what, subject, of)

    async def page(
        self, template: str, *, status: int = 200, view: str = "", after: int = 0, **context: object
    ) -> Response:
        """`view` names the live view of the page, which shows all records up to `after`.

        Drawn in the tenant's own threads: how long that takes is up to what its programs have written.
        """
        shared = {
            "root": ROOT,
            "nav": self._nav,
            "here": self.request.url.path,
            "section": _section(self.request.url.path),
            "principal": self.principal,
            "source": self.source,
            "form_token": self.session.form_token,
            "live": f"{ROOT}/news?view={view}" if view else "",
            "after": after,
            "waiting": self.waiting,
            "may_approve": self.may(Scope.APPROVE),
            "sees_all": self.sees_all,
        }
        return HTMLResponse(await self.blocking(lambda: render(template, **shared, **context)), status)

    def go(self, path: str) -> Response:
        """After an action: the page that shows what came of it."""
        return RedirectResponse(f"{ROOT}{path}", 303)


def _section(path: str) -> str:
    """The page of the navigation that this one belongs to."""
    first = "/" + path.removeprefix(ROOT).strip("/").partition("/")[0]
    return "/" if first == "/runs" else first


def record_number(text: str) -> int | None:
    """None for what is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else None


async def read_form(request: Request) -> dict[str, str]:
    """The fields of a form as browsers send it; UsageError for anything else."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
        raise UsageError("send a form, as the page does")
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > _MOST_FORM_BYTES:
            raise UsageError("the form is too large")
    try:
        fields = parse_qs(
            body.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(body),
            errors="strict",
            max_num_fields=_MOST_FIELDS,
        )
    except ValueError as error:
        raise UsageError(f"the form cannot be read: {error}") from None
    if any(len(values) != 1 for values in fields.values()):
        raise UsageError("a field of the form is there twice")
    return {name: values[0] for name, values in fields.items()}
