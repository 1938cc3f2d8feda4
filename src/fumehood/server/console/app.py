"""The console as an application: who asks is found out first, then a page answers, with headers that hold for all.

Two hosts use it: a server (`server_host`), where people sign in with a key or at their identity provider, and `hood
console` (`local_host`), for one user.
"""

from __future__ import annotations

import hmac
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from typing import Protocol
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as AsgiScope

from fumehood.errors import FumehoodError, UsageError
from fumehood.server.console import pages
from fumehood.server.console.badges import count_waiting
from fumehood.server.console.page_request import NoSuchPageError, PageRequest, StalePageError, read_form, record_number
from fumehood.server.console.rendering import STATIC, asset, render
from fumehood.server.console.routes import ROOT, ConsoleRoute
from fumehood.server.console.sessions import ConsoleSession, SessionStore, cookie_of, remove_cookie
from fumehood.server.console.source import ConsoleSource
from fumehood.server.identity.principals import ForbiddenError, NotAuthenticatedError, Principal, Scope

CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)
_HEADERS = {
    "Content-Security-Policy": CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # with `no-referrer` forms would be sent without their origin
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_NEWS = "/news"
_ASSETS = {"console.css": "text/css", "console.js": "text/javascript", "icon.svg": "image/svg+xml"}


class ConsoleHost(Protocol):
    """What a console is part of."""

    is_local: bool

    @property
    def sessions(self) -> SessionStore: ...

    def source_of(self, principal: Principal) -> ConsoleSource: ...

    def admitted(self, principal: Principal) -> AbstractAsyncContextManager[None]:
        """For the time of a request; FumehoodError if there are too many."""
        ...

    def sign_in_routes(self) -> list[Route]:
        """How a session begins. One of them is `/sign-in`."""
        ...


def build_console(host: ConsoleHost) -> ASGIApp:
    """To be mounted at ROOT."""
    declared = [route for module in pages.modules(is_local=host.is_local) for route in module.routes]
    nav = tuple(route for route in declared if route.nav)
    routes = [
        Route("/static/{name}", _asset),
        *host.sign_in_routes(),
        Route(
            "/sign-out",
            partial(_answer, host, nav, ConsoleRoute("/sign-out", partial(_sign_out, host), (), "POST")),
            methods=["POST"],
        ),
        Route(_NEWS, partial(_answer, host, nav, ConsoleRoute(_NEWS, _news, ()))),
        *(Route(route.path, partial(_answer, host, nav, route), methods=[route.method]) for route in declared),
    ]
    app = Starlette(routes=routes, exception_handlers={Exception: _failed, HTTPException: _failed})
    app.router.redirect_slashes = False
    return _WithHeaders(app)


async def _answer(host: ConsoleHost, nav: tuple[ConsoleRoute, ...], route: ConsoleRoute, request: Request) -> Response:
    try:
        session = await _session(host, request)
        if session is None:
            return _to_sign_in(request)
        principal = session.principal
        async with host.admitted(principal):
            shown = tuple(each for each in nav if not each.scopes or any(map(principal.may, each.scopes)))
            page = PageRequest(request, session, host.source_of(principal), shown)
            if not page.may(*route.scopes):
                raise ForbiddenError(route.scopes[0])
            if route.method == "POST":
                page.form = await _checked_form(request, session)
            if page.may(Scope.APPROVE) and route.path != _NEWS:
                page.waiting = await page.blocking(lambda: count_waiting(page))
            answer = await route.handler(page)
        return _Held(answer, host.admitted(principal)) if isinstance(answer, StreamingResponse) else answer
    except Exception as error:
        return problem_page(request, error)


async def _session(host: ConsoleHost, request: Request) -> ConsoleSession | None:
    value = cookie_of(request)
    if value is None:
        return None
    return await host.sessions.find(value, request.client.host if request.client else None)


def _to_sign_in(request: Request) -> Response:
    """A page leads there and back; what is not a page is refused."""
    if request.method != "GET" or request.headers.get("sec-fetch-mode", "navigate") != "navigate":
        raise NotAuthenticatedError
    asked = f"?{request.url.query}" if request.url.query else ""
    return RedirectResponse(f"{ROOT}/sign-in?{urlencode({'to': request.url.path.removeprefix(ROOT) + asked})}", 303)


async def _checked_form(request: Request, session: ConsoleSession) -> dict[str, str]:
    require_own_origin(request)
    form = await read_form(request)
    if not hmac.compare_digest(form.pop("token", "").encode(), session.form_token.encode()):
        raise StalePageError("This page is of another session. Load it again.")
    return form


def require_own_origin(request: Request) -> None:
    """Forms of other sites are refused, whatever cookies come with them."""
    own = f"{request.url.scheme}://{request.headers.get('host', '')}"
    if (
        request.headers.getlist("origin") != [own]
        or request.headers.get("sec-fetch-site", "same-origin") != "same-origin"
    ):
        raise StalePageError("The form is not from a page of this console.")


async def _sign_out(host: ConsoleHost, page: PageRequest) -> Response:
    await host.sessions.end(cookie_of(page.request) or "")
    answer = RedirectResponse(f"{ROOT}/sign-in", 303)
    remove_cookie(answer)
    return answer


async def _news(page: PageRequest) -> Response:
    name, _, _ = page.query("view").partition(":")
    found = next(
        (each.views[name] for each in pages.modules(is_local=page.source.is_local) if name in each.views), None
    )
    if found is None or not page.may(*found[0]):
        raise NoSuchPageError
    after = page.request.headers.get("last-event-id") or page.query("after")
    if (number := record_number(after)) is None:
        raise UsageError("`after` must be the number of a record")
    view = await found[1](page)
    messages = page.source.feed.stream(view, number)
    return StreamingResponse(messages, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


async def _asset(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in _ASSETS:
        return problem_page(request, NoSuchPageError())
    # Of another version of the server, which its pages ask for by its own digest, nobody keeps ours.
    is_asked_for = asset(name) == f"{request.url.path}?{request.url.query}"
    headers = {"Cache-Control": "public, max-age=31536000, immutable"} if is_asked_for else {}
    return FileResponse(STATIC / name, media_type=_ASSETS[name], headers=headers)


async def _failed(request: Request, error: Exception) -> Response:
    return problem_page(request, error)


def problem_page(request: Request, error: Exception) -> Response:
    from fumehood.server.console.problems import status_and_words

    status, title, words = status_and_words(error)
    return HTMLResponse(render("problem.html", root=ROOT, status=status, title=title, words=words), status)


class _Held(Response):
    """An answer that may take long: as long as it lasts it is one of what its tenant may have open."""

    def __init__(self, inner: Response, admission: AbstractAsyncContextManager[None]) -> None:
        super().__init__()
        self._inner, self._admission = inner, admission

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        async with AsyncExitStack() as stack:
            answer = self._inner
            try:
                await stack.enter_async_context(self._admission)
            except FumehoodError as error:
                answer = problem_page(Request(scope), error)
            await answer(scope, receive, send)


class _WithHeaders:
    """What every answer carries. No browser or proxy keeps a page: it may show what is not to be shown later."""

    def __init__(self, inner: ASGIApp) -> None:
        self._inner = inner

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)  # a figure has a stricter policy of its own
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        await self._inner(scope, receive, with_headers)
