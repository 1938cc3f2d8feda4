"""Sign-in at an identity provider: away to it, and back with a code that only this browser can use."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from fumehood.server.console.app import problem_page
from fumehood.server.console.page_request import NoSuchPageError, StalePageError
from fumehood.server.console.rendering import render
from fumehood.server.console.routes import ROOT
from fumehood.server.console.sessions import NOT_KNOWN, SessionStore, cookie_of, set_cookie
from fumehood.server.console.sign_in import safe_place
from fumehood.server.identity.authenticator import Authenticator
from fumehood.server.identity.code_flow import CodeFlow
from fumehood.server.identity.principals import NotAuthenticatedError

COOKIE = "__Host-hood-sign-in"
_SECONDS = 600
_MOST_CODE = 4096


class ProviderSignIn:
    """The cookie says which browser has left; it is sent with the way back, which another site leads to."""

    def __init__(self, sessions: SessionStore, authenticator: Authenticator, flows: Mapping[str, CodeFlow]) -> None:
        self._sessions, self._authenticator, self._flows = sessions, authenticator, flows

    def routes(self) -> list[Route]:
        return [Route("/sign-in/with/{name}", self.leave), Route("/sign-in/from/{name}", self.come_back)]

    async def leave(self, request: Request) -> Response:
        try:
            flow = self._flow(request)
            state, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(48)
            again = cookie_of(request) is not None  # somebody who signs in again is to show who they are
            address = await flow.sign_in_address(_redirect(request), state, verifier, again=again)
        except Exception as error:
            return problem_page(request, error)
        answer = RedirectResponse(address, 303)
        to = safe_place(request.query_params.get("to", ""))
        value = f"{state}|{verifier}|{to}"
        answer.set_cookie(COOKIE, value, max_age=_SECONDS, path="/", secure=True, httponly=True, samesite="lax")
        return answer

    async def come_back(self, request: Request) -> Response:
        try:
            flow, name = self._flow(request), request.path_params["name"]
            state, verifier, to = _left(request)
            code = request.query_params.get("code", "")
            if not hmac.compare_digest(request.query_params.get("state", "").encode(), state.encode()):
                raise StalePageError("This is not the sign-in that was begun here. Begin again.")
            if not code or len(code) > _MOST_CODE:
                raise StalePageError("The identity provider did not sign you in. Begin again.")
            token, id_token = await flow.tokens(code, _redirect(request), verifier)
            principal = await self._authenticator.credential(token, request.client.host if request.client else None)
            if not principal.name.startswith(f"user:{name}/"):
                raise NotAuthenticatedError
            signed_in = await self._authenticator.sign_in_time(principal, id_token)
        except Exception as error:
            return problem_page(request, error)
        if old := cookie_of(request):
            await self._sessions.end(old)
        # Not a redirection: the browser would count that as coming from the provider, and leave the cookie out.
        answer = HTMLResponse(render("signed_in.html", root=ROOT, to=safe_place(to)))
        answer.delete_cookie(COOKIE, path="/", secure=True, httponly=True, samesite="lax")
        set_cookie(answer, await self._sessions.begin(principal, signed_in or NOT_KNOWN))
        return answer

    def _flow(self, request: Request) -> CodeFlow:
        flow = self._flows.get(request.path_params["name"])
        if flow is None:
            raise NoSuchPageError
        return flow


def _redirect(request: Request) -> str:
    name = request.path_params["name"]
    return f"{request.url.scheme}://{request.headers.get('host', '')}{ROOT}/sign-in/from/{name}"


def _left(request: Request) -> tuple[str, str, str]:
    parts = request.cookies.get(COOKIE, "").split("|")
    if len(parts) != 3 or not parts[0]:
        raise StalePageError("No sign-in was begun in this browser, or too long ago. Begin again.")
    return parts[0], parts[1], parts[2]
