"""Whether a policy may be opened, or take the place of that of an open sandbox: what no backend decides."""

from __future__ import annotations

import warnings

from fumehood.backends.interface import Backend
from fumehood.backends.selection import select_backend
from fumehood.errors import DangerousPolicyWarning, UnenforceableError, UsageError
from fumehood.policy import Policy
from fumehood.tenant import Tenant


def admit(policy: Policy, tenant: Tenant, *, is_gated: bool) -> Backend:
    """The backend that enforces the whole policy for this tenant; raises if none does."""
    backend = select_backend(policy)
    _refuse_ungated(policy, backend.name, is_gated=is_gated)
    backend.check(policy, tenant)
    warn_of_dangers(policy)
    return backend


def _refuse_ungated(policy: Policy, backend: str, *, is_gated: bool) -> None:
    """Approvals that are not asked for would be worse than none."""
    if policy.approvals and not is_gated:
        raise UnenforceableError(
            "approvals",
            backend=backend,
            reason="a sandbox alone does not ask for them",
            remedy="Use `hood run`, or a gate (fumehood.tools.approvals) and AsyncSandbox(policy, gated=True).",
        )


def warn_of_dangers(policy: Policy) -> None:
    """Emits a Python warning for each danger, which an application can turn into an error, and `hood` shows."""
    for finding in policy.dangers():
        # Of this very line, wherever it was called from, so that Python shows each of them once.
        warnings.warn(f"{finding.key}: {finding.message}", DangerousPolicyWarning, stacklevel=1)


def check_change(old: Policy, new: Policy) -> None:
    if not old.network.allow and new.network.allow:
        raise UsageError("this sandbox was opened without network rules, and gets none; open another one with them")
    if old.network.shares_loopback != new.network.shares_loopback:
        raise UsageError("whether runs share a loopback is decided when a sandbox is opened; open another one")
    changes = old.model_copy(update={"network": new.network}).diff(new)
    if changes:
        raise UsageError(f"an open sandbox can get other network rules and nothing else; this {'; '.join(changes)}")
