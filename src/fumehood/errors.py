"""Every exception that Fumehood raises, by who must act.

FumehoodError
├── UsageError            the caller: an argument, a path, a language that does not exist
│   ├── PolicyError       the author of a policy: names file, line, key and value
│   ├── UnknownKeywordError  the caller: a keyword argument that the function does not take (a TypeError too)
│   ├── SandboxBusyError  the caller: a named sandbox is in use by another process
│   └── MessageError      the sender of a message: it is unknown, not valid or too large
├── DeniedError           the policy: what was asked is not allowed
│   ├── NotApprovedError    a person has to say yes to this, and has not
│   │   └── ApprovalPendingError  a request is open, and this call does not wait for its answer
│   ├── NotGrantedError     the grants of an agent do not have this
│   └── UnenforceableError  the policy asks for a control that this backend cannot enforce here
├── QuotaError            the tenant of a server: it has used up what it may have; names the quota
├── DeliveryError         the runtime of the agents: a message was not delivered, or no answer came back
│   ├── DeadlineError       not in time
│   ├── OverloadedError     a queue, or the number of agents, is at its limit
│   ├── LoopError           it went from agent to agent too often, or would wait for itself
│   ├── RefusedError        the other agent, or an interceptor, says no, and why
│   ├── AgentFailedError    the other agent could not be made, or raised an error
│   └── StoppedError        the runtime is at its end
├── ModelError            a model, or the server that runs it: `kind` says how it failed
└── SandboxError          our machinery: names the step that failed
    ├── AuditError        the audit log cannot be written or read; without it nothing runs
    ├── LostError         a sandbox elsewhere, its server or the way to it is gone
    ├── DamagedSnapshotError  a stored snapshot is not what was written; names the snapshot and the file
    └── StepFailedError   a kernel or system call inside that step failed

A program that fails is a result, not an exception; `result.check()` makes it one, `fumehood.results.RunFailedError`.
"""

from __future__ import annotations

DOCTOR = "Run `hood doctor` to see what works on this machine."


class FumehoodError(Exception):
    """The root of all of ours; its text says what failed, on what, and what to do next."""

    errno: int | None = None
    """The kernel's word for it, such as ENOENT, where a file of the sandbox is what it is about."""


class UsageError(FumehoodError):
    """The caller asked for something that makes no sense; nothing was started."""


_MOST_PROBLEMS = 20


class PolicyError(UsageError):
    """A policy is invalid; `problems` holds one line for each mistake, and the text the first of them."""

    def __init__(self, problems: list[str]) -> None:
        left = len(problems) - _MOST_PROBLEMS
        # A file of a stranger's can have any number of mistakes.
        more = [f"... and {left} more {'mistake' if left == 1 else 'mistakes'}"] if left > 0 else []
        super().__init__("\n".join([*problems[:_MOST_PROBLEMS], *more]))
        self.problems = problems


class UnknownKeywordError(UsageError, TypeError):
    """A keyword argument that the function does not have, with the nearest one that it has."""


class MessageError(UsageError):
    """A message that is not valid: of an unknown type, not as its type defines it, or too large."""


class SandboxBusyError(UsageError):
    """A named sandbox is open in another process, or in another place of this one."""

    def __init__(self, name: str, holder: str) -> None:
        super().__init__(f"sandbox {name!r} is in use by process {holder}; wait for it, or fork the sandbox")
        self.name, self.holder = name, holder


class DangerousPolicyWarning(UserWarning):
    """A sandbox was opened whose policy can cost the host or its credentials; `hood policy check` finds the same."""


class DeniedError(FumehoodError):
    """The policy does not allow this; nothing was started."""


class UnenforceableError(DeniedError):
    """A control of the policy cannot be enforced by this backend on this machine, so nothing opens."""

    def __init__(self, control: str, *, backend: str, reason: str, remedy: str) -> None:
        super().__init__(f"{control}: not enforced by backend {backend}: {reason}. {remedy}")
        self.control, self.backend, self.reason, self.remedy = control, backend, reason, remedy


class NotApprovedError(DeniedError):
    """An approval was denied, expired, or was given for another call; nothing was started.

    `outcome` is denied, expired, revoked, withdrawn, used, or asked: then there is no answer yet.
    """

    def __init__(self, outcome: str, tool: str, why: str) -> None:
        super().__init__(f"{tool}: not approved: {why}")
        self.outcome, self.tool, self.why = outcome, tool, why


class ApprovalPendingError(NotApprovedError):
    """An approval request with the id `request` is open; the same call can be made again once it is answered."""

    def __init__(self, tool: str, request: str, why: str) -> None:
        super().__init__("asked", tool, why)
        self.request = request


class NotGrantedError(DeniedError):
    """An agent tried what its grants do not have; nothing was sent, opened or called."""

    def __init__(self, agent: str, action: str, target: str) -> None:
        super().__init__(f"{agent} may not {action} {target}: its grants do not say so")
        self.agent, self.action, self.target = agent, action, target


class QuotaError(FumehoodError):
    """A server refuses because the tenant is at a limit; nothing was started.

    `quota` is its name, `most` its value, `used` how much of it is used, and `resets` when there is room again, in
    seconds since 1970, as far as that is known.
    """

    def __init__(self, text: str, *, quota: str, most: float, used: float, resets: float | None) -> None:
        super().__init__(text)
        self.quota, self.most, self.used, self.resets = quota, most, used, resets


class DeliveryError(FumehoodError):
    """A message did not get to an agent, or no answer came back."""


class DeadlineError(DeliveryError):
    """There was no answer in time; the other agent was told to stop."""


class OverloadedError(DeliveryError):
    """The other side has more to do than its limits allow, and did not catch up in time."""


class LoopError(DeliveryError):
    """A message went from agent to agent too often, or to one that waits for this very answer."""


class RefusedError(DeliveryError):
    """A refusal by an agent or an interceptor: the sender receives this text, and nothing else of the failure."""


class AgentFailedError(DeliveryError):
    """The other agent could not be made, or its handler raised an error."""


class AgentLostError(DeliveryError):
    """The process that was the other agent's home is gone, or the connection to it was, before there was an answer.

    Whether the message had an effect is not known; it is not sent again.
    """


class StoppedError(DeliveryError):
    """The runtime is at its end, or has not begun."""


class ModelError(FumehoodError):
    """A model did not answer, or not with anything that is usable. `kind` is one of `fumehood.agents.ModelFailure`."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


class SandboxError(FumehoodError):
    """Our own machinery failed; the program is not to blame."""


class AuditError(SandboxError):
    """The audit log cannot be written, or not be trusted; what would have to be recorded does not happen."""


class LostError(SandboxError):
    """A sandbox elsewhere, its server or the way to it is gone for good.

    Whether a run that was under way had an effect is not known; it is not done again.
    """


class HostUnavailableError(SandboxError):
    """A host of a cluster opens no sandbox now: it is full, about to end, or not for this tenant. Another one may."""


class DamagedSnapshotError(SandboxError):
    """What the disk has is not what was written to it; nothing of it is used."""

    def __init__(self, snapshot: str, what: str) -> None:
        super().__init__(
            f"snapshot {snapshot[:12]} is damaged: {what}; restore the folder of snapshots from a backup, "
            "or begin with another snapshot"
        )
        self.snapshot, self.what = snapshot, what


class StepFailedError(SandboxError):
    """A step of our own machinery failed; the message names the step."""

    def __init__(self, step: str, detail: str, *, remedy: str = DOCTOR) -> None:
        super().__init__(f"{step} failed: {detail}. {remedy}")
        self.step, self.detail, self.remedy = step, detail, remedy
