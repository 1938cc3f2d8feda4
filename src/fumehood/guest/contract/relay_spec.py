"""What the host tells the guest of a container: plain data, written by the host, trusted by the guest."""

from __future__ import annotations

from typing import Literal, TypedDict


class RunLimits(TypedDict):
    """The limits of a run, as far as they are not the whole container's."""

    open_files: int
    file_bytes: int
    cpu_seconds: float | None
    address_space_bytes: int | None
    """Set where running out of memory would end the whole container."""
    processes: int


class RelaySpec(TypedDict):
    limits: RunLimits
    writable: dict[str, bool]
    """Targets of writable mounts, and whether programs may make sockets in them."""
    executables: list[str] | None
    """Names and paths of the only programs that can be executed; None when any can."""
    hidden: str | None
    """A folder in the root that programs may not read: the guest's own interpreter."""
    preload: list[str]
    module_path: list[str]
    environment: dict[str, str]
    user: list[int] | None
    """The uid and gid of programs, where the guest has another one and may change it."""
    groups: Literal["gvisor", "machine"] | None
    """The kernel of its own, if it has one: the guest holds its runs by groups then, which no other kernel lets it."""
    patience_seconds: float
    """How long the host may be silent."""
