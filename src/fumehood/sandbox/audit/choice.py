"""Which audit log a sandbox, an agent or a runtime writes to."""

from __future__ import annotations

import os
import secrets

from fumehood.audit import AuditLog, Trail
from fumehood.audit.log import current_user
from fumehood.audit.trail import OFF
from fumehood.errors import UnenforceableError, UsageError
from fumehood.policy import Audit, Policy
from fumehood.secret_scan.redaction import Redaction
from fumehood.tenant import LOCAL, Tenant

AuditChoice = AuditLog | Trail | str | os.PathLike[str] | bool | None
"""A log, a trail in one, the folder of one, False for none at all, True or None for the default log."""


def find_trail(choice: AuditChoice, tenant: Tenant = LOCAL) -> Trail:
    """`OFF` when the caller chose False."""
    if isinstance(choice, Trail):
        return choice
    if choice is False:
        return OFF
    if choice is None or choice is True:
        return Trail(AuditLog.default() if tenant.folder is None else AuditLog.at(tenant.folder / "audit"))
    return Trail(choice if isinstance(choice, AuditLog) else AuditLog.at(choice))


def open_trail(policy: Policy, choice: AuditChoice, tenant: Tenant) -> Trail:
    """The trail of a new sandbox; raises when the log cannot be opened, or is off although the policy configures it."""
    chosen = find_trail(choice, tenant)
    if tenant.name and chosen.tenant not in (None, tenant.name):
        raise UsageError(f"audit: this trail is of tenant {chosen.tenant}, and the sandbox is of {tenant.name}")
    if not chosen.is_on:
        if policy.audit != Audit():
            raise UnenforceableError(
                "audit",
                backend=policy.backend,
                reason="the audit log is turned off",
                remedy="Turn it on, or remove `audit`.",
            )
        return OFF
    return Trail(
        chosen.log,
        chosen.who or current_user(),
        tenant.name or chosen.tenant,
        {**chosen.ids, "sandbox": f"box_{secrets.token_hex(8)}"},
        Redaction.of((*chosen.redaction.values, *Redaction.for_policy(policy, tenant.secrets).values)),
        chosen.synced or policy.audit.durability == "synced",
    )
