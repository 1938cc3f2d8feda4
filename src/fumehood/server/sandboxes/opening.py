"""What a sandbox is opened with, once that is checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field

from fumehood.frozen import frozen
from fumehood.policy import Policy
from fumehood.sandbox.workspace_state import PolicyUse


@frozen
class Times:
    """In seconds."""

    lifetime: float = 3600
    idle: float = 600
    linger: float = 30


@frozen
class NameUse:
    """A named sandbox, and how it is used; see `AsyncSandbox.open`."""

    name: str
    create: bool = False
    wait: bool = False
    policy: PolicyUse = PolicyUse.OWN


@frozen
class Opening:
    policy_name: str
    policy: Policy
    times: Times
    metadata: Mapping[str, str]
    session: bool = False
    keep_tmp: bool = False
    learn: bool = False
    gated: bool = False
    """The caller asks for the approvals that the policy wants."""
    snapshot: str | None = None
    named: NameUse | None = None
    mounts: Mapping[str, str] = field(default_factory=dict[str, str])
    """Target -> the name of what was sent along to be mounted there."""
    progress: Callable[[str], None] | None = None
