"""The pages, in the order of the navigation."""

from __future__ import annotations

from fumehood.server.console.pages import approvals, audit, egress, now, run, tasks, usage
from fumehood.server.console.routes import PageModule


def modules(*, is_local: bool) -> tuple[PageModule, ...]:
    """Those of `hood console`, or all. What manages a server is not imported for one user, who may not have it."""
    first = (now.MODULE, run.MODULE, tasks.MODULE, approvals.MODULE, egress.MODULE)
    if is_local:
        return (*first, audit.MODULE, usage.MODULE)
    from fumehood.server.console.pages import keys, policies, tenants, workers

    managing = (keys.MODULE, tenants.MODULE, workers.MODULE)
    return (*first, policies.MODULE, audit.MODULE, usage.MODULE, *managing)
