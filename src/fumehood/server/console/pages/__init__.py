"""The pages, in the order of the navigation."""

from __future__ import annotations

from fumehood.server.console.pages import now, run
from fumehood.server.console.routes import PageModule

ALL: tuple[PageModule, ...] = (now.MODULE, run.MODULE)
