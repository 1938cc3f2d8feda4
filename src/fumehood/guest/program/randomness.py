"""Forked runs start from the same memory; here the sources of randomness in it are made new.

`secrets`, `uuid4` and `ssl` ask the kernel by themselves.
"""

from __future__ import annotations

import sys


def renew() -> None:
    if "random" in sys.modules:
        sys.modules["random"].seed()
    if "tempfile" in sys.modules:
        # The sequence of names is seeded once for each process id, and all runs have the same one.
        vars(sys.modules["tempfile"])["_name_sequence"] = None
    if "uuid" in sys.modules:
        vars(sys.modules["uuid"]).update(_last_timestamp=None, _node=None)
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
