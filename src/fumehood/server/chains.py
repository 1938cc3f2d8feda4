"""Audit chains: one for each tenant, and the server's own."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from pathlib import Path

from fumehood.audit.log import AuditLog
from fumehood.audit.trail import Trail
from fumehood.errors import AuditError
from fumehood.host.folders import PrivateFolder
from fumehood.server.identity.principals import Principal
from fumehood.server.settings import VARIABLE
from fumehood.server.tenants.tenants import check_tenant_name

FOLDER = PrivateFolder("the server's state", VARIABLE, error=AuditError)
_SERVER = "server"
_LOOK_SECONDS = 1.0
_ROOM_BYTES = 1024 * 1024


class AuditChains:
    """`tenants/<name>/audit` below the state folder, and `audit` for what concerns the server itself."""

    def __init__(self, state: Path) -> None:
        FOLDER.make(state)
        self._state = state
        self._folders: dict[str, Path] = {}
        """Of tenants, once they were checked."""
        self._look: asyncio.Task[None] | None = None
        self._looked = 0.0

    async def look_for_room(self) -> None:
        """`check_room`, at most once in a second however many ask: it costs the disk, and needs no key."""
        if self._look is None or (self._look.done() and time.monotonic() > self._looked + _LOOK_SECONDS):
            self._looked = time.monotonic()
            self._look = asyncio.ensure_future(asyncio.to_thread(self.check_room))
        await asyncio.shield(self._look)

    def check_room(self) -> None:
        """OSError or AuditError if records cannot be written: the disk has failed, or has no room for a few. Blocks."""
        AuditLog.at(self._state / "audit").sync()
        with tempfile.TemporaryFile(dir=self._state) as probe:
            os.posix_fallocate(probe.fileno(), 0, _ROOM_BYTES)

    def folder_of(self, tenant: str) -> Path:
        """All that is kept on this host for one tenant; made if need be."""
        known = self._folders.get(tenant)
        if known is not None and os.path.isdir(known):
            return known
        check_tenant_name(tenant)
        folder = self._state / "tenants" / tenant
        FOLDER.make(folder.parent)
        FOLDER.make(folder)
        self._folders[tenant] = folder
        return folder

    def has_log_of(self, tenant: str) -> bool:
        """Whether anything of the tenant's was ever recorded on this host."""
        return (self.folder_of(tenant) / "audit").exists()

    def log_of(self, tenant: str) -> AuditLog:
        return AuditLog.at(self.folder_of(tenant) / "audit")

    def trail_of(self, principal: Principal) -> Trail:
        """Where what a principal does with sandboxes is recorded."""
        return Trail(self.log_of(principal.tenant), principal.name, principal.tenant)

    def own(self, principal: Principal | None = None) -> Trail:
        """Where what changes the server itself is recorded."""
        log = AuditLog.at(self._state / "audit")
        return Trail(log, principal.name if principal else _SERVER, principal.tenant if principal else None)
