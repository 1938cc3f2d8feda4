"""The pages, in the order of the navigation."""

from __future__ import annotations

from fumehood.server.console.pages import (
    approvals,
    audit,
    egress,
    keys,
    now,
    policies,
    run,
    tasks,
    tenants,
    usage,
    workers,
)
from fumehood.server.console.routes import PageModule

ALL: tuple[PageModule, ...] = (
    now.MODULE,
    run.MODULE,
    tasks.MODULE,
    approvals.MODULE,
    egress.MODULE,
    policies.MODULE,
    audit.MODULE,
    usage.MODULE,
    keys.MODULE,
    tenants.MODULE,
    workers.MODULE,
)
