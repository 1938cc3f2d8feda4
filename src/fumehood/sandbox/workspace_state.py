"""The state of a workspace on disk: the snapshot that a sandbox begins with, and where its next state is saved."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from enum import Enum
from functools import partial
from typing import Protocol

import anyio
import anyio.from_thread
import anyio.to_thread

from fumehood.audit import Attachment, Trail
from fumehood.backends.interface import Conversation
from fumehood.concurrency.threads import run_whole
from fumehood.errors import UsageError
from fumehood.policy import Policy, deny_all
from fumehood.sandbox.audit.snapshots import (
    SandboxCreated,
    SandboxForked,
    SandboxPolicyChanged,
    SandboxSaved,
    SnapshotMade,
    SnapshotRestored,
)
from fumehood.sandbox.files.artifacts import ArtifactTracker
from fumehood.sandbox.files.errors import Converse, explained
from fumehood.sandbox.files.workspace_copy import WorkspaceRestorer, WorkspaceSaver, check_room
from fumehood.snapshots import NamedSandbox, Snapshot, SnapshotManifest, SnapshotStore
from fumehood.snapshots.garbage import make_room
from fumehood.snapshots.records import SnapshotRecord, checked_name
from fumehood.snapshots.store import SnapshotLease, StoreWriter
from fumehood.tenant import Tenant

_MOST_FORKS = 1000


class PolicyUse(Enum):
    """Which policy a named sandbox is opened with."""

    OWN = "own"
    ONCE = "once"
    """Another one, for this use alone."""
    FROM_NOW_ON = "from now on"


class KeptSandbox(Protocol):
    """What snapshots need to know of a sandbox, wherever it runs."""

    @property
    def policy(self) -> Policy: ...

    @property
    def tenant(self) -> Tenant: ...

    @property
    def trail(self) -> Trail: ...

    @property
    def open_sessions(self) -> int:
        """How many have a process, which may write to the workspace at any moment."""
        ...

    def converse(self) -> AbstractAsyncContextManager[Conversation]:
        """A conversation with the file service inside."""
        ...


class WorkspaceState:
    """`begin` is a snapshot by name or id; with `name`, the state of a named sandbox is used and kept."""

    def __init__(
        self,
        tenant: Tenant,
        begin: Snapshot | str | None = None,
        *,
        name: str | None = None,
        wait: bool = False,
        create: bool = False,
        lease: SnapshotLease | None = None,
        use: PolicyUse = PolicyUse.OWN,
    ) -> None:
        self._begin, self._name, self._wait, self._lease = begin, name, wait, lease
        self._create, self._use = create, use
        self._tenant = tenant
        self._store = SnapshotStore.open_for(tenant)
        self._base: SnapshotManifest | None = None
        """What this sandbox was given, or what was last read of it."""

    async def acquire(self, stack: AsyncExitStack, policy: Policy, trail: Trail) -> None:
        """Before anything is opened: the lock of the name, the snapshot, and that it fits."""
        stack.callback(self.release)
        if self._name is not None:
            await self._acquire_name(stack, self._name, policy, trail)
        elif self._begin is not None:
            self._base = await anyio.to_thread.run_sync(self._find, self._begin)
        if self._base is not None:
            check_room(self._base, policy)

    async def _acquire_name(self, stack: AsyncExitStack, name: str, policy: Policy, trail: Trail) -> None:
        acquire = partial(
            self._store.acquire,
            name,
            wait=self._wait,
            heartbeat=anyio.from_thread.check_cancelled,
            is_new=self._create,
        )
        lock = await run_whole(acquire, lambda lock: self._store.abandon(name, lock))
        stack.callback(self._store.abandon, name, lock)
        if self._create and not self._store.has(name):
            await trail.write(created(await anyio.to_thread.run_sync(self._make_empty, name, policy), "empty"))
        record = self._record = self._store.find(name)
        if record.policy_digest != policy.digest and self._use is PolicyUse.OWN:
            raise UsageError(f"the policy of sandbox {name!r} was changed meanwhile; open it again")
        self._base = await anyio.to_thread.run_sync(self._store.manifest, record.snapshot)

    def _make_empty(self, name: str, policy: Policy) -> NamedSandbox:
        with self._store.writing() as writer:
            manifest = SnapshotManifest.of(())
            writer.commit(manifest)
            record = NamedSandbox.new(name, manifest, policy)
            self._store.create(record)
        return record

    def _find(self, begin: Snapshot | str) -> SnapshotManifest:
        return self._store.manifest(
            begin.id if isinstance(begin, Snapshot) else self._store.find_snapshot(begin).snapshot
        )

    async def restore(self, core: KeptSandbox, converse: Converse, artifacts: ArtifactTracker) -> None:
        manifest, policy, trail = self._base, core.policy, core.trail
        if manifest is None:
            return
        if manifest.entries:
            async with explained(converse, "restore", "", policy) as conversation:
                await WorkspaceRestorer(conversation, self._store, artifacts).restore(manifest)
        await trail.write(SnapshotRestored(manifest.id, self._name))
        if self._use is PolicyUse.FROM_NOW_ON and self._record.policy_digest != policy.digest:
            await self._change_policy(policy, trail)

    async def _change_policy(self, policy: Policy, trail: Trail) -> None:
        old, self._record = self._record, self._record.with_policy(policy)
        await trail.write(SandboxPolicyChanged(old.name, old.policy_digest, policy.digest, Attachment(policy.meaning)))
        await anyio.to_thread.run_sync(self._store.update, self._record)

    def release(self) -> None:
        """Once it is closed, or will never be acquired: the store need not keep what it begins with."""
        if self._lease is not None:
            self._lease.close()
            self._lease = None

    @property
    def is_named(self) -> bool:
        return self._name is not None

    async def save(self, core: KeptSandbox, converse: Converse) -> Snapshot:
        """The state that the next use of this name begins with; durable when this returns."""
        if self._name is None:
            raise UsageError("this sandbox has no name to be saved under; use `snapshot`, or Sandbox.open(name)")

        def keep(manifest: SnapshotManifest) -> None:
            self._record = self._record.with_state(manifest)
            self._store.update(self._record)

        made = await self._take(core, converse, keep)
        await core.trail.write(SandboxSaved(self._name, made.id, made.files, made.size_bytes, made.new_bytes))
        return made

    async def snapshot(self, name: str | None, core: KeptSandbox, converse: Converse) -> Snapshot:
        if name is not None:
            checked_name(name)

        def keep(manifest: SnapshotManifest) -> None:
            self._store.record_snapshot(SnapshotRecord.of(manifest, name, self._name))

        made = await self._take(core, converse, keep, name)
        await core.trail.write(SnapshotMade(made.id, name, made.files, made.size_bytes, made.new_bytes))
        return made

    async def fork(self, count: int, core: KeptSandbox, converse: Converse) -> list[WorkspaceState]:
        """States that begin with this one's, without a name. All of them share what is stored."""
        if not 1 <= count <= _MOST_FORKS:
            raise UsageError(f"fork({count}) cannot be; ask for 1 to {_MOST_FORKS} copies")
        leases: list[SnapshotLease] = []
        made = await self._take(core, converse, lambda manifest: leases.append(self._store.lease(manifest.id)))
        await core.trail.write(SandboxForked(made.id, count))
        shared = [leases[0], *(leases[0].share() for _ in range(count - 1))]
        return [WorkspaceState(self._tenant, made, lease=lease) for lease in shared]

    async def _take(
        self,
        core: KeptSandbox,
        converse: Converse,
        keep: Callable[[SnapshotManifest], None],
        name: str | None = None,
    ) -> Snapshot:
        """`keep` makes the record by which the snapshot is found, once all that it needs is on disk."""
        await anyio.to_thread.run_sync(make_room, self._store)
        async with _writing(self._store) as writer:
            known = await anyio.to_thread.run_sync(self._known)
            async with explained(converse, "save", "", core.policy) as conversation:
                saver = WorkspaceSaver(conversation, writer, known, core.policy, is_still=not core.open_sessions)
                manifest = await saver.save()
            await anyio.to_thread.run_sync(_commit, writer, manifest, keep)
            new_bytes = writer.batch.new_bytes
        self._base = manifest
        return Snapshot.of(manifest, name, new_bytes, tuple(saver.skipped))

    def _known(self) -> dict[str, int]:
        """Contents that this sandbox was given, as far as the store still has them."""
        digests = self._base.digests if self._base else {}
        return {digest: size for digest, size in digests.items() if self._store.blobs.has(digest, size)}


@asynccontextmanager
async def _writing(store: SnapshotStore) -> AsyncIterator[StoreWriter]:
    context = store.writing()
    writer = await run_whole(context.__enter__, lambda _: context.__exit__(None, None, None))
    try:
        with store.explaining_full_disk():
            yield writer
    finally:
        context.__exit__(None, None, None)


def _commit(writer: StoreWriter, manifest: SnapshotManifest, keep: Callable[[SnapshotManifest], None]) -> None:
    writer.commit(manifest)
    keep(manifest)


def created(record: NamedSandbox, source: str) -> SandboxCreated:
    policy = Attachment(record.policy.encode("ascii"))
    return SandboxCreated(record.name, record.snapshot, record.policy_digest, policy, source)


def policy_of(tenant: Tenant, name: str, wanted: Policy | None, *, create: bool) -> Policy:
    """The policy to open a named sandbox with: the one that is asked for, else its own."""
    store = SnapshotStore.open_for(tenant)
    if wanted is not None:
        checked_name(name)
        return wanted
    return deny_all() if create and not store.has(name) else store.find(name).read_policy()
