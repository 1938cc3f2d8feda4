"""The application: the routes below /v1, the channel beside them, and what is checked before either."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache
from typing import cast

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, WebSocketRoute
from starlette.types import ASGIApp
from starlette.websockets import WebSocket

from fumehood import __version__
from fumehood.errors import FumehoodError
from fumehood.server.api import (
    approvals,
    audit,
    files,
    health,
    keys,
    mounts,
    named,
    policies,
    runs,
    sandboxes,
    tenants,
    whoami,
    workers,
)
from fumehood.server.api.admission import Admission, RequestCheck
from fumehood.server.api.idempotency import IdempotentAnswers
from fumehood.server.api.problems import PlainJson, answer_problem, invalid_request
from fumehood.server.channel import SandboxChannel
from fumehood.server.lifetime import ServerState, open_server
from fumehood.server.settings import ServerSettings
from fumehood.server.storage.database import StorageError
from fumehood.server.tracing import TracedRequests

_PARTS = (sandboxes, runs, files, mounts, named, policies, tenants, keys, approvals, audit, workers, whoami, health)


def build_app(
    settings: ServerSettings,
    *,
    ready: Callable[[ServerState], None] = lambda server: None,
    fail: Callable[[str], None] = lambda reason: None,
) -> ASGIApp:
    """`ready` gets the server when requests can come; `fail` the reason why it must not go on."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with _said(fail), open_server(settings, fail) as server:
            app.state.server = server
            if settings.console:
                _mount_console(app, server)
            app.state.channel = SandboxChannel(
                server.database,
                server.authenticator,
                server.registry,
                server.connections,
                server.chains.trail_of,
                sandboxes.longest_times(settings),
                server.tenancy.store_of,
            )
            ready(server)
            yield

    app = build_api(lifespan)

    def server() -> ServerState:
        return cast("ServerState", app.state.server)

    checked = RequestCheck(Admission(IdempotentAnswers(app, server), server), settings)
    return TracedRequests(checked, lambda: server().tracing)


@asynccontextmanager
async def _said(fail: Callable[[str], None]) -> AsyncIterator[None]:
    """The reason why the block fails is not left to uvicorn, which has a log that no person reads."""
    try:
        yield
    except (FumehoodError, StorageError, OSError) as error:
        fail(str(error))
        raise


def build_api(lifespan: Callable[[FastAPI], object] | None = None) -> FastAPI:
    """The routes with their document, which needs no server."""
    app = FastAPI(
        title="Fumehood",
        version=__version__,
        summary="Sandboxes for many tenants.",
        openapi_url="/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        default_response_class=PlainJson,
        redirect_slashes=False,
        lifespan=lifespan,  # pyright: ignore[reportArgumentType]  # of the kind that Starlette takes
    )
    app.router.routes += _routes()
    app.router.routes.append(WebSocketRoute("/v1/channel", _channel))
    for kind in (FumehoodError, StorageError, HTTPException, Exception):
        app.add_exception_handler(kind, answer_problem)  # pyright: ignore[reportArgumentType]  # of any request
    app.add_exception_handler(RequestValidationError, _answer_invalid)
    return app


@cache
def _routes() -> list[BaseRoute]:
    """The same for all servers of a process: making them takes most of the time in which one starts."""
    below = APIRouter(prefix="/v1", default_response_class=PlainJson)
    for part in _PARTS:
        below.include_router(part.router)
    return [*below.routes]


def _mount_console(app: FastAPI, server: ServerState) -> None:
    """Below /console: pages for people, who sign in there."""
    from fumehood.server.console.app import build_console
    from fumehood.server.console.routes import ROOT
    from fumehood.server.console.server_host import ServerConsole

    console = ServerConsole(server)
    server.before_end.append(console.close)
    app.mount(ROOT, build_console(console))


async def _channel(socket: WebSocket) -> None:
    await cast("SandboxChannel", socket.app.state.channel).serve(socket)


async def _answer_invalid(request: Request, error: Exception) -> Response:
    return invalid_request(cast("RequestValidationError", error).errors())
