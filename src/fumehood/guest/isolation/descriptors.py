"""Which descriptors a process keeps when it becomes what it was born for; every other one is closed."""

from __future__ import annotations

import os
from collections.abc import Sequence

# No descriptor has a higher number; the kernel closes all of them in one call.
_END_OF_DESCRIPTORS = os.sysconf("SC_OPEN_MAX")
_STANDARD_STREAMS = 3


def keep_only(descriptors: Sequence[int]) -> None:
    """At the numbers from 0 on. They arrived at higher ones."""
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
    os.closerange(len(descriptors), _END_OF_DESCRIPTORS)


def keep_one(descriptor: int) -> int:
    """Behind standard streams that lead nowhere; returns its new number."""
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    keep_only((nothing,) * _STANDARD_STREAMS + (descriptor,))
    os.set_inheritable(_STANDARD_STREAMS, False)
    return _STANDARD_STREAMS
