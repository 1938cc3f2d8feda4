"""Makes sessions. The policy is the client's: neither options nor what a session stores can change it."""

from __future__ import annotations

import uuid
from typing import Literal

from agents.sandbox import Manifest
from agents.sandbox.session import SandboxSession, SandboxSessionState
from agents.sandbox.session.dependencies import Dependencies
from agents.sandbox.session.manager import Instrumentation
from agents.sandbox.session.sandbox_client import BaseSandboxClient, BaseSandboxClientOptions
from agents.sandbox.snapshot import SnapshotBase, SnapshotSpec, resolve_snapshot

from fumehood.errors import UsageError
from fumehood.integrations.adapter import default_policy
from fumehood.integrations.openai_agents.session import FumehoodSandboxSession, FumehoodSandboxSessionState
from fumehood.policy import AnyPolicy
from fumehood.remote.place import USUAL
from fumehood.sandbox.interface import Opener


class FumehoodSandboxClientOptions(BaseSandboxClientOptions):
    """There are none: all that can be said of a sandbox is in the client's policy."""

    # The SDK finds the class by this literal.
    type: Literal["fumehood"] = "fumehood"  # pyright: ignore[reportIncompatibleVariableOverride]


class FumehoodSandboxClient(BaseSandboxClient[FumehoodSandboxClientOptions | None]):
    """`SandboxRunConfig(client=FumehoodSandboxClient(policy))`.

    A sandbox ends with its session or its process, whichever is first. A session that is resumed has a new one, with
    the files of its snapshot.
    """

    backend_id = "fumehood"
    supports_default_options = True

    def __init__(
        self,
        policy: AnyPolicy | None = None,
        *,
        instrumentation: Instrumentation | None = None,
        dependencies: Dependencies | None = None,
        sandboxes: Opener = USUAL,
    ) -> None:
        self._policy, self._opener = default_policy(policy), sandboxes
        self._instrumentation = instrumentation or Instrumentation()
        self._dependencies = dependencies

    async def create(
        self,
        *,
        snapshot: SnapshotSpec | SnapshotBase | None = None,
        manifest: Manifest | None = None,
        options: FumehoodSandboxClientOptions | None = None,
    ) -> SandboxSession:
        wanted = self._validate_manifest_for_create(manifest or Manifest())
        session_id = uuid.uuid4()
        state = FumehoodSandboxSessionState(
            session_id=session_id, manifest=wanted, snapshot=resolve_snapshot(snapshot, str(session_id))
        )
        return self._wrapped(state)

    async def delete(self, session: SandboxSession) -> SandboxSession:
        """Nothing is left of one that was shut down; one that was not is shut down now."""
        await session.shutdown()
        return session

    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        if not isinstance(state, FumehoodSandboxSessionState):
            raise UsageError(f"the session is one of {state.type!r}, which this client cannot resume")
        state.assert_path_grants_rebound()
        # The old sandbox is gone, and nothing of it is ready.
        return self._wrapped(state.model_copy(update={"workspace_root_ready": False}))

    def deserialize_session_state(self, payload: dict[str, object]) -> SandboxSessionState:
        return self._deserialize_session_state_payload(payload, FumehoodSandboxSessionState)

    def _wrapped(self, state: FumehoodSandboxSessionState) -> SandboxSession:
        session = FumehoodSandboxSession(state, self._policy, self._opener)
        return self._wrap_session(session, instrumentation=self._instrumentation)
