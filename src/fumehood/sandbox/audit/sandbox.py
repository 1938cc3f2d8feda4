"""Records of one sandbox, and of a session in it: opened, refused, denied, changed, closed."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import lru_cache

import anyio

from fumehood.audit import Attachment, Trail
from fumehood.audit.events import (
    ArtifactsFound,
    PolicyChanged,
    RequestDenied,
    SandboxClosed,
    SandboxOpened,
    SandboxRefused,
    SessionClosed,
    SessionOpened,
)
from fumehood.audit.records import Entry
from fumehood.audit.trail import OFF
from fumehood.backends.interface import BackendSandbox, EnforcementReport, PackageFolder, RunRequest
from fumehood.errors import AuditError, DeniedError, FumehoodError, UsageError
from fumehood.policy import Audit, Policy, deny_all
from fumehood.results import Artifact, RunResult
from fumehood.sandbox.audit.choice import AuditChoice, open_trail
from fumehood.sandbox.audit.files import FileAudit
from fumehood.sandbox.audit.run import EgressEvents, RunAudit, write_after
from fumehood.secret_scan.redaction import Redaction
from fumehood.tenant import LOCAL, RunMeter, Tenant


class SandboxAudit:
    """Writes nothing while the sandbox is not open, and nothing at all where the log is off."""

    def __init__(self, choice: AuditChoice = False, tenant: Tenant = LOCAL) -> None:
        self.choice, self._tenant = choice, tenant
        self._keep = deny_all().audit
        self.trail = OFF
        self._held: list[Entry] = []
        """The record of an opening that no caller has seen; written with the next record."""

    @asynccontextmanager
    async def opening(self, policy: Policy) -> AsyncIterator[Trail]:
        """The block opens the sandbox; an error that ends it is recorded as a refusal."""
        trail = self.trail = open_trail(policy, self.choice, self._tenant)
        self._keep = policy.audit
        try:
            yield trail
        except BaseException as error:
            self.trail = OFF
            if isinstance(error, FumehoodError) and not isinstance(error, AuditError):
                await trail.write(SandboxRefused(policy.digest, policy.name, type(error).__name__, str(error)))
            raise

    async def opened(
        self,
        policy: Policy,
        backend: str,
        sandbox: BackendSandbox,
        packages: PackageFolder | None,
        *,
        is_held: bool = False,
    ) -> None:
        if not self.trail.is_on:
            return
        event = SandboxOpened(
            policy_digest=policy.digest,
            policy_name=policy.name,
            policy=Attachment(policy.meaning),
            backend=backend,
            enforcement=Attachment(_mechanisms(sandbox.report)),
            environment_digest=packages.digest if packages else None,
            image=sandbox.image_digest,
            process=os.getpid(),
        )
        if is_held:
            self._held.append(self.trail.stamp(event))
        else:
            await self.trail.write(event)

    async def closed(self, *, is_failing: bool) -> None:
        """When an error closes the sandbox, an error of the log does not replace it."""
        trail, self.trail = self.trail, OFF
        if not trail.is_on:
            return
        with anyio.CancelScope(shield=True), suppress(*([AuditError] if is_failing else [])):
            await write_after(self._held, trail, SandboxClosed())

    async def closed_with(self, run: RunAudit, result: RunResult) -> RunResult:
        """The same result, once it is recorded together with the closing of the sandbox that came after the run."""
        await run.finished(result, lambda: (self.trail.stamp(SandboxClosed()),))
        self.trail = OFF
        return result

    def run(self, request: RunRequest) -> RunAudit:
        return RunAudit(self.trail, self._keep, request, held=self._held, meter=self._tenant.meter)

    def files(self) -> FileAudit:
        return FileAudit(self.trail)

    def session(self, egress: Callable[[], EgressEvents]) -> SessionAudit:
        """`egress` is called when a run of the session begins, and gives the egress events since then."""
        trail = self.trail.within(session=f"session_{os.urandom(8).hex()}")
        return SessionAudit(trail, self._keep, egress, self._tenant.meter)

    @asynccontextmanager
    async def denials(self, action: str) -> AsyncIterator[None]:
        """A DeniedError that ends the block is recorded."""
        try:
            yield
        except DeniedError as error:
            await write_after(self._held, self.trail, RequestDenied(action, type(error).__name__, str(error)))
            raise

    async def denied(self, result: RunResult) -> None:
        """A run that was refused before it began."""
        events = (RequestDenied("run", each.kind, str(each)) for each in result.denials)
        await write_after(self._held, self.trail.within(run=result.run_id), *events)

    def redact_secrets_of(self, policy: Policy) -> None:
        """The values that they have now are removed too from whatever is written for this sandbox from now on."""
        if self.trail.is_on:
            self.trail.redaction.add(Redaction.for_policy(policy, self._tenant.secrets).values)

    async def policy_changed(self, policy: Policy) -> None:
        if self.trail.is_on:
            # Once more: the gateway may have read a value that is newer than the one before the change. One that cannot
            # be read any more does not keep the change from being recorded.
            with suppress(UsageError):
                self.redact_secrets_of(policy)
            await self.trail.write(PolicyChanged(policy.digest, Attachment(policy.meaning)))

    @property
    def keeps_output(self) -> bool:
        """In full."""
        return self.trail.is_on and self._keep.output == "full"

    async def artifacts(
        self, run_id: str, found: tuple[Artifact, ...], problem: str | None, pictures: Mapping[str, bytes]
    ) -> None:
        """`pictures` are contents of some of them, by digest."""
        if found or problem is not None:
            listed = tuple(_listed(each, pictures.get(each.sha256)) for each in found)
            await self.trail.within(run=run_id).write(ArtifactsFound(listed, problem))


def _listed(artifact: Artifact, content: bytes | None) -> Mapping[str, object]:
    facts: dict[str, object] = {"path": artifact.path, "size": artifact.size, "sha256": artifact.sha256}
    return facts if content is None else {**facts, "content": Attachment(content)}


@lru_cache(maxsize=64)
def _mechanisms(report: EnforcementReport) -> bytes:
    return json.dumps(report.mechanisms(), sort_keys=True).encode()


class SessionAudit:
    """Records of one session."""

    def __init__(
        self, trail: Trail, keep: Audit, egress: Callable[[], EgressEvents], meter: RunMeter | None = None
    ) -> None:
        self._trail, self._keep, self._egress, self._meter = trail, keep, egress, meter

    async def opened(self) -> None:
        await self._trail.write(SessionOpened())

    def run(self, request: RunRequest) -> RunAudit:
        return RunAudit(self._trail, self._keep, request, self._egress(), meter=self._meter)

    async def closed(self) -> None:
        """No result is withheld here: a log that cannot be written is an error of whatever comes next."""
        with anyio.CancelScope(shield=True), suppress(AuditError):
            await self._trail.write(SessionClosed())
