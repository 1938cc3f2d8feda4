"""What a tenant keeps on this host: how much, and how long."""

from __future__ import annotations

from fumehood.server.tenants.quotas import Limits, Quota, QuotaExceededError


class TenantDiskLimits:
    """The limits of a tenant's named sandboxes and snapshots; a check that fails names the quota."""

    def __init__(self, limits: Limits, days: int) -> None:
        self._limits, self._days = limits, days

    @property
    def size_bytes(self) -> int:
        return int(self._limits[Quota.DISK].value)

    @property
    def days(self) -> int:
        return self._days

    def check_sandboxes(self, count: int) -> None:
        """`count` are there already."""
        if count >= self._limits[Quota.NAMED].value:
            raise QuotaExceededError(Quota.NAMED, self._limits[Quota.NAMED], count)

    def check_snapshots(self, count: int) -> None:
        if count >= self._limits[Quota.SNAPSHOTS].value:
            raise QuotaExceededError(Quota.SNAPSHOTS, self._limits[Quota.SNAPSHOTS], count)

    def check_size(self, size_bytes: int) -> None:
        if size_bytes > self.size_bytes:
            raise QuotaExceededError(Quota.DISK, self._limits[Quota.DISK], size_bytes)
