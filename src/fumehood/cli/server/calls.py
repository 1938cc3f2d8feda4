"""How `hood tenant`, `hood key` and `hood quota` reach a server's data, on its host and as its user.

They make the calls of the HTTP API that operators have. A running server answers them, if it has the database for
itself: it leaves its address and an operator's key in its state folder, which only its user can read. Otherwise the
same application does, in this process and without a network.
"""

from __future__ import annotations

import argparse
import asyncio
import ipaddress
import json
import os
import ssl
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote, urlsplit

from fumehood.audit.log import current_user
from fumehood.errors import SandboxError, UsageError
from fumehood.remote.requests import ServerRequests

if TYPE_CHECKING:
    from fumehood.server.settings import ServerSettings

FILE = "operator.json"
_HOST = "_host"
"""In the place of a tenant: no tenant can have this name."""
Answer = Any


def require_extra() -> None:
    if find_spec("fastapi") is None or find_spec("uvicorn") is None:
        raise UsageError("a server needs its web framework: pip install 'fumehood[server]'")


def add_place(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", help="the server's settings")
    parser.add_argument("--database", metavar="URL", help="sqlite:///PATH or postgresql://...")


class PlaceArguments(argparse.Namespace):
    config: str | None
    database: str | None


def call(chosen: PlaceArguments, method: str, *path: str, body: object = None) -> Answer:
    """The answer of an operator's call; UsageError with what the server says against it."""
    require_extra()
    from fumehood.server.settings import load_settings
    from fumehood.server.storage.choice import is_shared
    from fumehood.server.storage.database import StorageError

    settings = load_settings(chosen.config, database=chosen.database)
    place = "/v1/" + "/".join(quote(part, safe="") for part in path)
    running = None if is_shared(settings.database_url) else read_note(settings.folder / FILE)
    if running:
        return _running_server(running).call(method, *path, body=body)
    try:
        status, answer = _local(settings, method, place, body)
    except StorageError as error:
        if is_shared(settings.database_url):
            raise SandboxError(str(error)) from error
        raise SandboxError(
            f"{error}; `hood serve` of this user has it, or has not ended well: see {settings.folder}"
        ) from error
    if status >= 400:
        raise UsageError(str(answer.get("detail", "the server refuses")))
    return answer


def write_note(path: Path, address: str, key: str, settings: ServerSettings) -> None:
    parts = urlsplit(address)
    note = {
        "address": f"{parts.scheme}://{_own_address(settings)}:{parts.port}",
        "host": settings.hosts[0] if settings.hosts else parts.hostname,
        "key": key,
        "certificate": settings.tls.certificate if settings.tls else None,
    }
    draft = path.with_name(f".{path.name}-{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(note, file)
    os.replace(draft, path)


def _own_address(settings: ServerSettings) -> str:
    """Where this host reaches a server that listens everywhere."""
    host = settings.address[0]
    own = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{own}]" if ":" in own else own


def read_note(path: Path) -> dict[str, str] | None:
    """What a running server has left; None if there is none, or it does not answer any more."""
    try:
        note = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}; remove it if no server is running") from error
    return note if _running_server(note).is_there() else None


def _running_server(note: dict[str, str]) -> ServerRequests:
    context = None
    if note["address"].startswith("https"):
        # The address is this host's own; what answers there has to have the server's certificate, whatever its name.
        context = ssl.create_default_context(cafile=note["certificate"])
        context.check_hostname = False
    host = f"[{note['host']}]" if ":" in note["host"] else note["host"]
    return ServerRequests(note["address"], note["key"], context, host)


def _local(settings: ServerSettings, method: str, place: str, body: object) -> tuple[int, Answer]:
    return asyncio.run(_call_app(settings, method, place, body))


async def _call_app(settings: ServerSettings, method: str, place: str, body: object) -> tuple[int, Answer]:
    from fumehood.server.app import build_api
    from fumehood.server.identity.principals import Principal, Scope
    from fumehood.server.lifetime import open_server

    principal = Principal(_HOST, f"user:{current_user()}", frozenset({Scope.OPERATE}))
    app = build_api()
    content = b"" if body is None else json.dumps(body).encode()
    received: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": content, "more_body": False}

    async def send(message: Any) -> None:
        received.append(message)

    async with open_server(settings, _ignored, ships=False) as server:
        app.state.server = server
        scope = {
            "type": "http",
            "method": method,
            "path": place,
            "raw_path": place.encode(),
            "query_string": b"",
            "headers": [(b"content-type", b"application/json")],
            "state": {"principal": principal},
        }
        await app(scope, receive, cast("Callable[..., Any]", send))
    return received[0]["status"], _parsed(b"".join(message.get("body", b"") for message in received[1:]))


def _ignored(reason: str) -> None:
    """One call is over before anything could fail."""


def _parsed(content: bytes) -> Answer:
    try:
        return json.loads(content) if content else {}
    except ValueError as error:
        raise SandboxError("the server's answer is not JSON; is it a Fumehood server?") from error


async def make_operator_key(database: Any, settings: ServerSettings) -> str:
    """A key for the commands of this host, in the place of those that servers left that have not ended well."""
    from fumehood.server.identity.keys import create_key
    from fumehood.server.identity.principals import Scope

    await remove_operator_keys(database)
    networks = ["127.0.0.0/8", "::1/128", *_networks(settings.address[0])]
    key, _ = await create_key(database, _HOST, "commands of this host", [Scope.OPERATE], networks=networks)
    return key


def _networks(host: str) -> list[str]:
    """A host that connects to its own address is seen with that address."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return []
    return [] if address.is_unspecified else [str(ipaddress.ip_network(address))]


async def remove_operator_keys(database: Any) -> None:
    async with database.transaction(_HOST) as transaction:
        await transaction.execute("DELETE FROM keys WHERE tenant = ?", _HOST)
