"""A sandbox's way into the audit log: which log, under which id, and what is recorded when it opens and closes."""

from __future__ import annotations

import json
import os
import secrets
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import anyio

from fumehood.audit import Attachment, AuditLog, Trail
from fumehood.audit.events import SandboxClosed, SandboxOpened, SandboxRefused
from fumehood.audit.log import current_user
from fumehood.audit.redaction import Redaction
from fumehood.audit.trail import OFF
from fumehood.backends.interface import BackendSandbox, PackageFolder
from fumehood.errors import AuditError, DangerousPolicyWarning, FumehoodError, UnenforceableError
from fumehood.policy import Audit, Policy
from fumehood.policy.digest import canonical_meaning

AuditChoice = AuditLog | Trail | str | os.PathLike[str] | bool | None
"""A log, a trail in one, the folder of one, False for none at all, True or None for the usual one."""


def open_trail(policy: Policy, choice: AuditChoice) -> Trail:
    """Raises before anything is opened when there is no log to write to, or none although the policy wants one."""
    chosen = find_trail(choice)
    if not chosen.is_on:
        if policy.audit != Audit():
            raise UnenforceableError(
                "audit",
                backend=policy.backend,
                reason="the audit log is turned off",
                remedy="Turn it on, or remove `audit`.",
            )
        return OFF
    named = replace(
        chosen, who=chosen.who or current_user(), synced=chosen.synced or policy.audit.durability == "synced"
    )
    secrets_of_policy = Redaction.for_policy(policy, os.environ).values
    return named.within(sandbox=f"box_{secrets.token_hex(8)}").redacting(
        Redaction.of((*named.redaction.values, *secrets_of_policy))
    )


def refuse_ungated(policy: Policy, backend: str, *, is_gated: bool) -> None:
    """Rules that nobody applies would be worse than none."""
    if policy.approvals and not is_gated:
        raise UnenforceableError(
            "approvals",
            backend=backend,
            reason="a sandbox alone asks nobody",
            remedy="Use `hood run`, or a gate (fumehood.tools.approvals) and AsyncSandbox(policy, gated=True).",
        )


def warn_of_dangers(policy: Policy) -> None:
    """With the warnings of Python, which an application can turn into errors, and `hood` shows as a line."""
    for finding in policy.dangers():
        # Of this very line, wherever it was called from, so that Python shows each of them once.
        warnings.warn(f"{finding.key}: {finding.message}", DangerousPolicyWarning, stacklevel=1)


def find_trail(choice: AuditChoice) -> Trail:
    """OFF for none."""
    if isinstance(choice, Trail):
        return choice
    if choice is False:
        return OFF
    if choice is None or choice is True:
        return Trail(AuditLog.default())
    return Trail(choice if isinstance(choice, AuditLog) else AuditLog.at(choice))


@asynccontextmanager
async def telling_refusals(trail: Trail, policy: Policy) -> AsyncIterator[None]:
    """Around the opening: that it failed is recorded too."""
    try:
        yield
    except FumehoodError as error:
        if not isinstance(error, AuditError):
            await trail.write(SandboxRefused(policy.digest, policy.name, type(error).__name__, str(error)))
        raise


async def tell_opened(
    trail: Trail, policy: Policy, backend: str, opened: BackendSandbox, packages: PackageFolder | None
) -> None:
    if not trail.is_on:
        return
    mechanisms = json.dumps(opened.report.mechanisms(), sort_keys=True).encode()
    event = SandboxOpened(
        policy_digest=policy.digest,
        policy_name=policy.name,
        policy=Attachment(canonical_meaning(policy)),
        backend=backend,
        enforcement=Attachment(mechanisms),
        environment_digest=packages.digest if packages else None,
        image=opened.image_digest,
        process=os.getpid(),
    )
    await trail.write(event)


async def tell_closed(trail: Trail, *, is_failing: bool) -> None:
    """When something else goes wrong already, that is the news."""
    with anyio.CancelScope(shield=True):
        if not is_failing:
            await trail.write(SandboxClosed())
            return
        with suppress(AuditError):
            await trail.write(SandboxClosed())
