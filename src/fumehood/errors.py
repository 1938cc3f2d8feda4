"""Every exception that Fumehood raises, by who must act.

FumehoodError
├── UsageError            the caller: an argument, a path, a language that does not exist
│   └── PolicyError       the author of a policy: names file, line, key and value
├── DeniedError           the policy: what was asked is not allowed
│   ├── NotApprovedError    a person has to say yes to this, and has not
│   └── UnenforceableError  the policy asks for a control that this backend cannot enforce here
└── SandboxError          our machinery: names the step that failed
    ├── AuditError        the audit log cannot be written or read; without it nothing runs
    └── StepFailedError   a kernel or system call inside that step failed

A program that fails is a result, never an exception.
"""

from __future__ import annotations

DOCTOR = "Run `hood doctor` to see what works on this machine."


class FumehoodError(Exception):
    """The root of all of ours; its text says what failed, on what, and what to do next."""

    errno: int | None = None
    """The kernel's word for it, such as ENOENT, where a file of the sandbox is what it is about."""


class UsageError(FumehoodError):
    """The caller asked for something that makes no sense; nothing was started."""


class PolicyError(UsageError):
    """A policy is invalid; `problems` holds one line for each mistake."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class DeniedError(FumehoodError):
    """The policy does not allow this; nothing was started."""


class UnenforceableError(DeniedError):
    """A control of the policy cannot be enforced by this backend on this machine, so nothing opens."""

    def __init__(self, control: str, *, backend: str, reason: str, remedy: str) -> None:
        super().__init__(f"{control}: not enforced by backend {backend}: {reason}. {remedy}")
        self.control, self.backend, self.reason, self.remedy = control, backend, reason, remedy


class NotApprovedError(DeniedError):
    """Somebody said no, nobody said yes in time, or the yes was for something else; nothing was started.

    `outcome` is denied, expired, revoked or used.
    """

    def __init__(self, outcome: str, tool: str, why: str) -> None:
        super().__init__(f"{tool}: not approved: {why}")
        self.outcome, self.tool, self.why = outcome, tool, why


class SandboxError(FumehoodError):
    """Our own machinery failed; the program is not to blame."""


class AuditError(SandboxError):
    """The audit log cannot be written, or not be trusted; what would have to be recorded does not happen."""


class StepFailedError(SandboxError):
    """A step of our own machinery failed; names the step so that nobody has to guess."""

    def __init__(self, step: str, detail: str, *, remedy: str = DOCTOR) -> None:
        super().__init__(f"{step} failed: {detail}. {remedy}")
        self.step, self.detail, self.remedy = step, detail, remedy
