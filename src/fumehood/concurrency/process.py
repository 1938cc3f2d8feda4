"""Which process this is, as a key for what must not be shared with a forked child: threads, connections, cells.

The process number alone is not enough: a child in a process namespace of its own can have its parent's.
"""

from __future__ import annotations

import os

ProcessKey = tuple[int, int]
"""The process number, and how many forks lie between this process and the first that imported this."""

_forks = 0


def _count_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_count_fork)


def process_key() -> ProcessKey:
    return os.getpid(), _forks
