"""What modules want done when the process forks, put aside until there is a program: it is for the program's forks.

Our own forks need none of it: the process that forks has one thread, and a run makes new what has to differ. Each hook
that ran would touch memory in every run, which the kernel then has to copy.
"""

from __future__ import annotations

import os
from typing import Any


class ForkHooks:
    """From its making until `release`, modules that are imported register nothing."""

    def __init__(self) -> None:
        self._usual = os.register_at_fork
        self._aside: list[dict[str, Any]] = []
        os.register_at_fork = self._put_aside

    def _put_aside(self, **hooks: Any) -> None:
        self._aside.append(hooks)

    def release(self) -> None:
        """Everything is imported."""
        os.register_at_fork = self._usual

    def register(self) -> None:
        """For the program's forks. In a run, or before it if the fork that makes it calls no hooks."""
        for hooks in self._aside:
            os.register_at_fork(**hooks)
