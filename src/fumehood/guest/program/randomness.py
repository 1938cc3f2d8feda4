"""Forked runs start from the same memory; here the sources of randomness in it are made new.

`secrets`, `uuid4` and `ssl` ask the kernel by themselves.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

_sources: list[Callable[[], object]] = []


def find_sources() -> None:
    """Before the first run: everything is imported. What runs start without is taken away once, for all of them."""
    _sources.clear()
    if random := sys.modules.get("random"):
        random.seed()  # which also forgets a number that is left of a pair
        # In one call, without the Python around it: every page of memory that a run touches is copied.
        _sources.append(partial(random._random.Random.seed, random._inst))
    if "tempfile" in sys.modules:
        # The sequence of names is seeded once for each process id, and all runs have the same one.
        vars(sys.modules["tempfile"])["_name_sequence"] = None
    if "uuid" in sys.modules:
        vars(sys.modules["uuid"]).update(_last_timestamp=None, _node=None)
    if "numpy.random" in sys.modules:
        _sources.append(sys.modules["numpy.random"].seed)


def renew() -> None:
    for seed in _sources:
        seed()
