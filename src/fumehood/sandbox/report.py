"""From what a run left behind to the result that its caller gets: denials, a hint, artifacts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fumehood.errors import AuditError, SandboxError
from fumehood.results import Cause, RunOutput, RunResult, Status
from fumehood.sandbox.core import SandboxCore
from fumehood.sandbox.egress import RunNetwork
from fumehood.sandbox.files.artifacts import ArtifactTracker
from fumehood.sandbox.hints import with_hint

# How a run ends that may have ended its container or machine too.
_TAKES_THE_SANDBOX = (Cause.LOST, Cause.MEMORY)


class RunReport:
    """Makes the results of one sandbox's runs."""

    def __init__(self, core: SandboxCore, artifacts: ArtifactTracker, lists_artifacts: Callable[[], bool]) -> None:
        self._core, self._artifacts, self._lists_artifacts = core, artifacts, lists_artifacts

    async def full_result(
        self, taken: RunOutput, run_id: str, network: RunNetwork, last_words: bytes = b""
    ) -> RunResult:
        result = self.result(taken, run_id, network, last_words)
        # A run in the background that the end of its sandbox has ended has no artifacts.
        return await self.with_artifacts(result) if self._core.is_open else result

    def result(self, taken: RunOutput, run_id: str, network: RunNetwork, last_words: bytes = b"") -> RunResult:
        """`last_words` is the end of standard error, where the output is not in `taken`."""
        core, news = self._core, network.news()
        result = RunResult.of(taken, run_id, core.policy.digest, core.image_digest, news.denials)
        stderr = taken.stderr or last_words
        return with_hint(result, stderr, core.policy, is_open=core.has_network, failures=news.failures)

    async def with_artifacts(self, result: RunResult) -> RunResult:
        """The result with the run's artifacts. More of them than allowed is a failure, whatever the exit code."""
        if not self._core.policy.filesystem.outputs or not self._lists_artifacts():
            return result
        audit = self._core.audit
        try:
            collection = await self._artifacts.collect(with_pictures=audit.keeps_output)
        except SandboxError as error:
            if result.cause in _TAKES_THE_SANDBOX and not isinstance(error, AuditError):
                return result  # nobody is left to ask for files, and how the run ended must not be lost with them
            raise
        await audit.artifacts(result.run_id, collection.artifacts, collection.problem, collection.pictures)
        if collection.problem is None or not result.ok:
            return replace(result, artifacts=collection.artifacts)
        return replace(result, status=Status.RESOURCE_EXCEEDED, cause=Cause.OUTPUT, detail=collection.problem)
