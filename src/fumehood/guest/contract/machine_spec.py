"""What the host tells the guest of a machine, after every restore and before any program: plain data."""

from __future__ import annotations

from typing import TypedDict

from .relay_spec import RelaySpec

ENTRY = "guest.relay.machine"
ENTROPY_BYTES = 64
"""As hexadecimal digits in `entropy`."""
PACKAGES_DISK = "vdb"


class MachineStart(TypedDict):
    entropy: str
    time_ns: int
    host_name: str
    workspace: str
    """The options of its file system, which is in memory."""
    scratch: str
    """The options of the one file system in memory that has all other folders of programs, with one limit for all."""
    scratch_folders: dict[str, int]
    """These folders, and their modes."""
    executes: bool
    """Whether files in these can be executed."""
    memory_bytes: int
    """Of all programs together, with the files that they write."""
    has_packages: bool
    """Whether the second disk holds packages."""
    fresh: bool
    """Whether the interpreter is to be a new one, with a hash seed and addresses of its own; it is sent anew then."""
    relay: RelaySpec


class MachineSpec(TypedDict):
    """What process 1 of a machine starts with: nothing when a template is made, else what to go on with."""

    start: MachineStart | None
