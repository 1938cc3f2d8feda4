"""Which backend serves a policy. Backends are shared by the whole process, so that their cells stay warm."""

from __future__ import annotations

import atexit
from functools import cache
from typing import TYPE_CHECKING

from fumehood.backends.interface import Backend
from fumehood.backends.native.prestart import Prestart
from fumehood.concurrency.process import ProcessKey, process_key
from fumehood.errors import UsageError
from fumehood.policy import Policy

if TYPE_CHECKING:
    from fumehood.backends.native.backend import NativeBackend
    from fumehood.backends.native.cells import PoolSizes

_CONTAINERS = ("docker", "gvisor")
_MACHINES = "microvm"
_sizes: dict[ProcessKey, PoolSizes] = {}


def select_backend(policy: Policy) -> Backend:
    """`auto` is the strongest that works here; today that is the native one."""
    name = policy.backend
    if name in _CONTAINERS:
        return _docker(process_key(), name)
    if name == _MACHINES:
        return _microvm(process_key())
    return _native(process_key())


def use_prestart(policy: Policy, prestart: Prestart) -> None:
    """Gives an interpreter that was started early to the backend of this policy, or ends it if that needs none.

    To be called before the process's first sandbox.
    """
    if policy.backend in (*_CONTAINERS, _MACHINES):
        prestart.abandon()
    else:
        _native(process_key()).use_prestart(prestart)


def use_pool_sizes(sizes: PoolSizes) -> None:
    """How much the native backend keeps ready. To be called before the process's first sandbox."""
    if process_key() in _sizes or _native.cache_info().currsize:
        raise UsageError("use_pool_sizes must be called once, before the first sandbox of this process")
    _sizes[process_key()] = sizes


def start_cell_early(policy: Policy, prestart: Prestart) -> None:
    """As `use_prestart`, and the interpreter becomes a cell while the caller does other things."""
    use_prestart(policy, prestart)
    if policy.backend not in (*_CONTAINERS, _MACHINES):
        _native(process_key()).start_cell_early(policy)


@cache
def _native(process: ProcessKey) -> NativeBackend:
    """One for each process: a forked child must not talk to its parent's cells."""
    from fumehood.backends.native.backend import NativeBackend

    backend = NativeBackend(sizes=_sizes.get(process))
    atexit.register(_close_own, backend.close, process)
    return backend


@cache
def _docker(process: ProcessKey, name: str) -> Backend:
    from fumehood.backends.docker import DockerBackend

    backend = DockerBackend(name)
    atexit.register(_close_own, backend.close, process)
    return backend


@cache
def _microvm(process: ProcessKey) -> Backend:
    from fumehood.backends.microvm import MicroVMBackend

    backend = MicroVMBackend()
    atexit.register(_close_own, backend.close, process)
    return backend


def _close_own(close: object, process: ProcessKey) -> None:
    if process_key() == process and callable(close):
        close()
