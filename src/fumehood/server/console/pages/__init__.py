"""The pages, in the order of the navigation."""

from __future__ import annotations

from fumehood.server.console.pages import egress, keys, now, policies, run, tenants, usage, workers
from fumehood.server.console.routes import PageModule

ALL: tuple[PageModule, ...] = (
    now.MODULE,
    run.MODULE,
    egress.MODULE,
    policies.MODULE,
    usage.MODULE,
    keys.MODULE,
    tenants.MODULE,
    workers.MODULE,
)
