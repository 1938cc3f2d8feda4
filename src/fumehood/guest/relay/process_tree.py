"""How a supervisor holds everything that its run starts, so that all of it can be ended and nothing gets away."""

from __future__ import annotations

import os
import signal
import struct
from contextlib import suppress

from ..contract.landlock import landlock_abi
from ..isolation import kernel
from . import usage

_PR_SET_CHILD_SUBREAPER = 36
_SIGNALS_SCOPE = 0b10
_REFER = 1 << 13
_ABI_WITH_SCOPES = 6


class ProcessTree:
    """Descendants: a process that loses its parent becomes the supervisor's child, so that none leaves the tree.

    Where Landlock can scope signals, one call ends them all at once, while none of them can reach the supervisor.
    Elsewhere they are stopped first, again and again until there are no new ones, and then killed.
    """

    def __init__(self) -> None:
        kernel.set_option(_PR_SET_CHILD_SUBREAPER, 1)
        self._is_scoped = landlock_abi() >= _ABI_WITH_SCOPES
        if self._is_scoped:
            _scope_signals()

    def enter(self) -> None:
        """In the program's process: it was forked into the tree."""

    def count_others(self, program: int) -> int:
        return len(_descendants(os.getpid()) - {program})

    def failures(self) -> usage.LimitFailures:
        return usage.failures()

    def cpu_seconds(self) -> float:
        """Of what is there, with what each has waited for, and of what has ended as our own child.

        Not of what ended while its parent ignored that: the kernel then adds it to nobody.
        """
        others = _descendants(os.getpid(), with_dead=True)
        return usage.cpu_seconds_of_children() + sum(map(usage.cpu_seconds_with_children, others))

    def peak_memory_bytes(self) -> int:
        """0: nothing counts that of all processes of a run together."""
        return 0

    def kill(self) -> None:
        """Returns when no process is left."""
        while True:
            if self._is_scoped:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(-1, signal.SIGKILL)
            else:
                _kill_stopped(os.getpid())
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                return


def _scope_signals() -> None:
    # SAFETY: takes from this process and its children the right to signal any other process.
    # Moving files between folders is denied by every set of rules that does not allow it.
    ruleset = kernel.landlock_ruleset(struct.pack("=QQQ", _REFER, 0, _SIGNALS_SCOPE))
    root = os.open("/", os.O_PATH | os.O_CLOEXEC)
    kernel.landlock_allow(ruleset, struct.pack("=Qi", _REFER, root))
    os.close(root)
    kernel.landlock_restrict(ruleset)
    os.close(ruleset)


def _kill_stopped(ancestor: int) -> None:
    stopped: set[int] = set()
    while new := _descendants(ancestor) - stopped:
        for process in new:
            _signal(process, signal.SIGSTOP)
        stopped |= new
    for process in stopped:
        _signal(process, signal.SIGKILL)


def _signal(process: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(process, number)


def _descendants(ancestor: int, *, with_dead: bool = False) -> set[int]:
    """Living ones; the dead among them wait to be buried and do nothing."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError), open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as stream:
                state, parent = stream.read().rpartition(")")[2].split()[:2]
                if with_dead or state not in "ZX":
                    children.setdefault(int(parent), []).append(int(name))
    found: set[int] = set()
    waiting = [ancestor]
    while waiting:
        new = children.get(waiting.pop(), [])
        found.update(new)
        waiting += new
    return found
