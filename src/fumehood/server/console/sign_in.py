"""Sign-in with an API key: a form, and a session for what the key may do."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Sequence

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from fumehood.server.console.app import problem_page, require_own_origin
from fumehood.server.console.page_request import read_form
from fumehood.server.console.rendering import render
from fumehood.server.console.routes import ROOT
from fumehood.server.console.sessions import SessionStore, cookie_of, set_cookie
from fumehood.server.identity.principals import NotAuthenticatedError, Principal

_PLACE = re.compile(r"(/[A-Za-z0-9_./-]{0,200})(\?[A-Za-z0-9_.~%=&+:@,*-]{0,1000})?", re.ASCII)
Authenticate = Callable[[str, str | None], Awaitable[Principal]]


class KeySignIn:
    """`providers` are the names of identity providers, for whom the page has links."""

    def __init__(self, sessions: SessionStore, authenticate: Authenticate, providers: Sequence[str] = ()) -> None:
        self._sessions, self._authenticate, self._providers = sessions, authenticate, providers

    def routes(self) -> list[Route]:
        return [Route("/sign-in", self.show), Route("/sign-in", self.begin, methods=["POST"])]

    async def show(self, request: Request) -> Response:
        return self._page(request.query_params.get("to", ""))

    async def begin(self, request: Request) -> Response:
        form: dict[str, str] = {}
        try:
            require_own_origin(request)
            form = await read_form(request)
            address = request.client.host if request.client else None
            principal = await self._authenticate(form.get("key", "").strip(), address)
        except NotAuthenticatedError:
            return self._page(form.get("to", ""), "The key is not valid, or not from here.", 401)
        except Exception as error:
            return problem_page(request, error)
        return await begin_session(self._sessions, request, principal, form.get("to", ""))

    def _page(self, to: str, wrong: str = "", status: int = 200) -> Response:
        page = render("sign_in.html", root=ROOT, to=safe_place(to), wrong=wrong, providers=self._providers)
        return HTMLResponse(page, status)


async def begin_session(sessions: SessionStore, request: Request, principal: Principal, to: str) -> Response:
    """A new cookie each time: one that was planted before is worth nothing."""
    if old := cookie_of(request):
        await sessions.end(old)
    answer = RedirectResponse(f"{ROOT}{safe_place(to)}", 303)
    set_cookie(answer, await sessions.begin(principal, time.time()))
    return answer


def safe_place(to: str) -> str:
    """A page of the console, whatever an address asks for."""
    found = _PLACE.fullmatch(to)
    return to if found and "//" not in found[1] and ".." not in found[1] else "/"
