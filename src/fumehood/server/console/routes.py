"""How a page of the console is declared: its path, who may see it, and what answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from starlette.responses import Response

from fumehood.frozen import frozen
from fumehood.server.identity.principals import Scope

if TYPE_CHECKING:
    from fumehood.server.console.news import LiveView
    from fumehood.server.console.page_request import PageRequest

ROOT = "/console"
Handler = Callable[["PageRequest"], Awaitable[Response]]


@frozen
class ConsoleRoute:
    """A page (GET) or an action (POST, of a form that carries the session's token)."""

    path: str
    """Below ROOT, such as `/runs/{id}`."""
    handler: Handler
    scopes: tuple[Scope, ...]
    """Any of these is enough; empty for everybody who is signed in."""
    method: str = "GET"
    nav: str = ""
    """Its name in the navigation; a page without one is reached by links."""
    key: str = ""
    """The letter that leads to it after `g`."""


ViewBuilder = Callable[["PageRequest"], Awaitable["LiveView"]]


@frozen
class PageModule:
    """What a module below `pages` declares: its routes, and the live views of its pages by name."""

    routes: tuple[ConsoleRoute, ...]
    views: Mapping[str, tuple[tuple[Scope, ...], ViewBuilder]]
