"""The routes of E2B's protocol: control plane, sandbox plane and ports, told apart by headers and host names."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from fumehood.server.connections import TooManyConnectionsError
from fumehood.server.e2b import control, filesystem, interpreter, process_service, watch_service
from fumehood.server.e2b.access import (
    Control,
    ControlHandler,
    SandboxHandler,
    control_call,
    place_of,
    sandbox_call,
    sandbox_of,
    token_of,
)
from fumehood.server.e2b.bodies import BodyUpload
from fumehood.server.e2b.envelopes import refused
from fumehood.server.e2b.errors import CallFailure, failure_of, gone
from fumehood.server.e2b.ports import forward
from fumehood.server.e2b.sandboxes import E2bSandbox, E2bSandboxes, Terms, Trails
from fumehood.server.e2b.transfers import files_call
from fumehood.server.sandboxes.registry import SandboxRegistry
from fumehood.server.storage.database import Database

_ENVD_PORT, _INTERPRETER_PORT = 49983, 49999
_EVERYTHING = ["GET", "POST", "PUT", "PATCH", "DELETE"]
_OWN_PORTS = (None, _ENVD_PORT, _INTERPRETER_PORT)
_STREAMS = frozenset({"Start", "Connect", "StreamInput", "WatchDir"})
_FILESYSTEM: dict[str, SandboxHandler] = {
    "Stat": filesystem.stat,
    "ListDir": filesystem.list_dir,
    "MakeDir": filesystem.make_dir,
    "Move": filesystem.move,
    "Remove": filesystem.remove,
    "WatchDir": watch_service.watch_dir,
    "CreateWatcher": watch_service.create_watcher,
    "GetWatcherEvents": watch_service.get_watcher_events,
    "RemoveWatcher": watch_service.remove_watcher,
}
_PROCESS: dict[str, SandboxHandler] = {
    "Start": process_service.start,
    "Connect": process_service.connect,
    "List": process_service.list_processes,
    "Update": process_service.update,
    "SendInput": process_service.send_input,
    "StreamInput": process_service.stream_input,
    "CloseStdin": process_service.close_stdin,
    "SendSignal": process_service.send_signal,
}


def e2b_app(database: Database, registry: SandboxRegistry, trails: Trails, terms: Terms | None = None) -> ASGIApp:
    """Needs an address of its own: the SDKs ask for paths from the root."""
    terms = terms or Terms()
    sandboxes = E2bSandboxes(registry, trails, terms)
    shared = Control(database, sandboxes, terms)
    others = Route("/{rest:path}", control_call(shared, control.not_here), methods=_EVERYTHING)
    routes = [*_control_routes(shared), *_sandbox_routes(sandboxes), others]
    return _ByPlace(Starlette(routes=routes), sandboxes, terms)


def _control_routes(shared: Control) -> list[Route]:
    def route(method: str, path: str, handler: ControlHandler) -> Route:
        return Route(path, control_call(shared, handler), methods=[method])

    return [
        *(route("POST", f"{version}/sandboxes", control.create) for version in ("", "/v2")),
        *(route("GET", f"{version}/sandboxes", control.list_sandboxes) for version in ("", "/v2")),
        *(route("POST", f"{version}/sandboxes/{{id}}/connect", control.connect) for version in ("", "/v2")),
        route("GET", "/sandboxes/{id}", control.detail),
        route("DELETE", "/sandboxes/{id}", control.kill),
        route("POST", "/sandboxes/{id}/timeout", control.set_timeout),
        route("POST", "/sandboxes/{id}/refreshes", control.refresh),
        route("GET", "/sandboxes/{id}/metrics", control.metrics),
        route("PUT", "/sandboxes/{id}/network", control.change_network),
    ]


def _sandbox_routes(sandboxes: E2bSandboxes) -> list[Route]:
    def rest(method: str, path: str, handler: SandboxHandler) -> Route:
        return Route(path, sandbox_call(sandboxes, handler, CallFailure.as_rest), methods=[method])

    def rpc(service: str, handlers: dict[str, SandboxHandler]) -> list[Route]:
        return [
            Route(
                f"/{service}/{name}",
                sandbox_call(sandboxes, handler, refused if name in _STREAMS else CallFailure.as_rpc),
                methods=["POST"],
            )
            for name, handler in handlers.items()
        ]

    return [
        rest("GET", "/health", _health),
        Route("/files", files_call(sandboxes), methods=["GET", "POST"]),
        *rpc("filesystem.Filesystem", _FILESYSTEM),
        *rpc("process.Process", _PROCESS),
        rest("POST", "/execute", interpreter.execute),
        rest("POST", "/contexts", interpreter.create_context),
        rest("GET", "/contexts", interpreter.list_contexts),
        rest("DELETE", "/contexts/{context}", interpreter.remove_context),
        rest("POST", "/contexts/{context}/restart", interpreter.restart_context),
    ]


async def _health(sandbox: E2bSandbox, request: Request) -> Response:
    return Response(status_code=204)


class _ByPlace:
    """Requests for a port of a sandbox's own go to it; all others to the routes."""

    def __init__(self, app: ASGIApp, sandboxes: E2bSandboxes, terms: Terms) -> None:
        self._app, self._sandboxes, self._terms = app, sandboxes, terms

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] not in ("GET", "HEAD"):
            upload = BodyUpload(receive, send)
            receive, send = upload.receive, upload.send
        sandbox = sandbox_of(self._sandboxes, Request(scope)) if scope["type"] == "http" else None
        holder = sandbox.opened.tokens.holder(token_of(Request(scope))) if sandbox else None
        if sandbox is None or holder is None:
            await self._answer(scope, receive, send)
            return
        try:
            with self._terms.one_more(sandbox.opened.tenant), sandbox.opened.tokens.used_by(holder):
                await self._answer(scope, receive, send)
        except TooManyConnectionsError as error:
            await failure_of(error).as_rest()(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or (port := place_of(Request(scope))[1]) in _OWN_PORTS or not _names_sandbox(scope):
            await self._app(scope, receive, send)
            return
        response = await self._forwarded(Request(scope, receive), port)
        await response(scope, receive, send)

    async def _forwarded(self, request: Request, port: int) -> Response:
        sandbox = sandbox_of(self._sandboxes, request)
        if sandbox is None:
            return gone()
        try:
            with sandbox.in_use():
                return await forward(await sandbox.ports.address_of(port), request)
        except OSError:
            message = f"The sandbox is running but port is not open: nothing listens on port {port}"
            return Response(message, 502)
        except Exception as error:
            return failure_of(error).as_rest()


def _names_sandbox(scope: Scope) -> bool:
    return place_of(Request(scope))[0] != ""
