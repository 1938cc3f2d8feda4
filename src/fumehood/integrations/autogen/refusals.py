"""What the executor refuses. Also a ValueError each, which is what callers of AutoGen's executors expect."""

from __future__ import annotations

from fumehood.errors import UsageError


class ExecutorError(UsageError, ValueError):
    """The executor was used in a way that makes no sense."""


class OptionError(ExecutorError):
    """An option cannot be enforced, or contradicts another one or the policy. `option` is its name."""

    def __init__(self, option: str, reason: str) -> None:
        super().__init__(f"{option}: {reason}")
        self.option, self.reason = option, reason
