"""Fumehood runs unreviewed code in a sandbox, with one gateway as its only way to the network.

    import fumehood
    fumehood.run("print(6 * 7)").stdout

Names are imported when they are first used, so that importing this package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module

__version__ = "0.1.0"

TYPE_CHECKING = False  # as type checkers read it; typing itself would be most of the time that this import takes
if TYPE_CHECKING:
    from fumehood.blocking import BackgroundRun, ExposedPort, Files, Sandbox, Session, Watch, run
    from fumehood.errors import (
        AuditError,
        DamagedSnapshotError,
        DangerousPolicyWarning,
        DeniedError,
        FumehoodError,
        LostError,
        NotApprovedError,
        PolicyError,
        QuotaError,
        SandboxBusyError,
        SandboxError,
        StepFailedError,
        UnenforceableError,
        UnknownKeywordError,
        UsageError,
    )
    from fumehood.events import Event, Finished, Stderr, Stdout
    from fumehood.policy import Policy
    from fumehood.remote.server import Server, connect
    from fumehood.results import Artifact, Cause, Denial, Display, RunFailedError, RunResult, Status
    from fumehood.sandbox.async_sandbox import AsyncSandbox
    from fumehood.sandbox.background import AsyncBackgroundRun, NewOutput
    from fumehood.sandbox.files import AsyncFiles, FileEntry, FileKind, Transfer
    from fumehood.sandbox.files.entries import ChangeKind, FileChange
    from fumehood.sandbox.files.watch import AsyncWatch
    from fumehood.sandbox.installation import Installation
    from fumehood.sandbox.ports import AsyncExposedPort
    from fumehood.sandbox.session import AsyncSession
    from fumehood.snapshots import Snapshot

_HOMES = {
    "sandbox.background": ("AsyncBackgroundRun", "NewOutput"),
    "blocking": ("BackgroundRun", "ExposedPort", "Files", "Sandbox", "Session", "Watch", "run"),
    "errors": (
        "AuditError",
        "DamagedSnapshotError",
        "DangerousPolicyWarning",
        "DeniedError",
        "FumehoodError",
        "LostError",
        "NotApprovedError",
        "PolicyError",
        "QuotaError",
        "SandboxBusyError",
        "SandboxError",
        "StepFailedError",
        "UnenforceableError",
        "UnknownKeywordError",
        "UsageError",
    ),
    "events": ("Event", "Finished", "Stderr", "Stdout"),
    "sandbox.files": ("AsyncFiles", "FileEntry", "FileKind", "Transfer"),
    "sandbox.files.entries": ("ChangeKind", "FileChange"),
    "sandbox.files.watch": ("AsyncWatch",),
    "policy": ("Policy",),
    "remote.server": ("Server", "connect"),
    "results": ("Artifact", "Cause", "Denial", "Display", "RunFailedError", "RunResult", "Status"),
    "sandbox.async_sandbox": ("AsyncSandbox",),
    "sandbox.ports": ("AsyncExposedPort",),
    "sandbox.installation": ("Installation",),
    "sandbox.session": ("AsyncSession",),
    "snapshots": ("Snapshot",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Artifact",
    "AsyncBackgroundRun",
    "AsyncExposedPort",
    "AsyncFiles",
    "AsyncSandbox",
    "AsyncSession",
    "AsyncWatch",
    "AuditError",
    "BackgroundRun",
    "Cause",
    "ChangeKind",
    "DamagedSnapshotError",
    "DangerousPolicyWarning",
    "Denial",
    "DeniedError",
    "Display",
    "Event",
    "ExposedPort",
    "FileChange",
    "FileEntry",
    "FileKind",
    "Files",
    "Finished",
    "FumehoodError",
    "Installation",
    "LostError",
    "NewOutput",
    "NotApprovedError",
    "Policy",
    "PolicyError",
    "QuotaError",
    "RunFailedError",
    "RunResult",
    "Sandbox",
    "SandboxBusyError",
    "SandboxError",
    "Server",
    "Session",
    "Snapshot",
    "Status",
    "Stderr",
    "Stdout",
    "StepFailedError",
    "Transfer",
    "UnenforceableError",
    "UnknownKeywordError",
    "UsageError",
    "Watch",
    "connect",
    "run",
]


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'fumehood' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"fumehood.{_HOME_OF[name]}"), name)
    return value


def load_ipython_extension(shell: object) -> None:
    """`%load_ext fumehood` adds the magics `%%hood` and `%hood`."""
    import_module("fumehood.integrations.jupyter.magic").load(shell)


def unload_ipython_extension(shell: object) -> None:
    import_module("fumehood.integrations.jupyter.magic").unload(shell)
