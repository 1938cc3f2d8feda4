"""Landlock: the second wall around files, which holds even for a descriptor that leaked in.

The first wall is the mount namespace. Where the kernel has no Landlock the rules are empty and the host says so.
"""

from __future__ import annotations

import ctypes
import os
import struct

from ..contract.landlock import landlock_abi
from ..contract.paths import RUN_FOLDER, TMP, VAR_TMP, WORKSPACE
from . import kernel
from .executables import Executables
from .plan import IsolationPlan

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_CHAR, _MAKE_SOCKET, _MAKE_BLOCK = 1 << 6, 1 << 9, 1 << 11
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_KNOWN_ACCESS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}
_NEWEST_ACCESS = (1 << 16) - 1
_SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS = 0b11
_READABLE = _EXECUTE | _READ_FILE | _READ_DIR
_FOR_FILES = _EXECUTE | _READ_FILE | _WRITE_FILE | _TRUNCATE | _IOCTL_DEV
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")


class FileRules:
    """Landlock rules. With `executables`, only those can be executed; `hidden`, a folder of the root, is unreadable."""

    def __init__(
        self, writable: dict[str, bool], executables: Executables | None = None, hidden: str | None = None
    ) -> None:
        self._abi = landlock_abi()
        self._known = _KNOWN_ACCESS.get(self._abi, _NEWEST_ACCESS)
        self._writable = writable
        self._executables = executables
        self._hidden = hidden
        self._ruleset = ctypes.c_int()

    def prepare(self, plan: IsolationPlan) -> None:
        if not self._abi:
            return
        plan.step("preparing file rules")
        scopes = _SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS if self._abi >= 6 else 0
        attributes = struct.pack("=QQQ", self._known, 0, scopes)
        size = 8 if self._abi < 4 else 16 if self._abi < 6 else 24
        create = kernel.SYS_LANDLOCK_CREATE_RULESET
        plan.call("syscall", create, attributes, size, 0, result=self._ruleset)
        self._allow_reading(plan)
        for folder in ("/dev/shm", RUN_FOLDER):
            self._allow(plan, folder, self._all_but_devices())
        # Nothing in it is to be written: oom_score_adj, for one, would save the program at the expense of others.
        self._allow(plan, "/proc", _READABLE & self._all_but_devices())
        for path, takes_sockets in self._writable.items():
            # One that was left behind would keep the mount from being shown a second time.
            access = self._all_but_devices() & (~0 if takes_sockets else ~_MAKE_SOCKET)
            self._allow(plan, path, access & (~0 if os.path.isdir(path) else _FOR_FILES))
        self._allow(plan, "/dev/pts", self._all_but_devices() | _IOCTL_DEV)
        for device in _DEVICES:
            self._allow(plan, device, _READ_FILE | _WRITE_FILE | _TRUNCATE | _IOCTL_DEV)

    def enforce(self, plan: IsolationPlan) -> None:
        """From here on the process and its descendants are bound."""
        if not self._abi:
            return
        plan.step("enforcing file rules")
        for folder in (WORKSPACE, TMP, VAR_TMP):
            self._allow(plan, folder, self._all_but_devices())
        plan.call("syscall", kernel.SYS_LANDLOCK_RESTRICT_SELF, self._ruleset, 0)
        plan.call("close", self._ruleset)

    def _allow_reading(self, plan: IsolationPlan) -> None:
        if self._executables is None and self._hidden is None:
            self._allow(plan, "/", _READABLE)
            return
        # Rules only ever add: to leave something out is to name everything else. Names in folders are for all to see.
        self._allow(plan, "/", _READ_DIR)
        access = _READ_FILE if self._executables else _READ_FILE | _EXECUTE
        for path in self._executables.readable() if self._executables else _in_root():
            if not self._is_hidden(path):
                self._allow(plan, path, access | (_READ_DIR if os.path.isdir(path) else 0))
        for path in self._executables.files if self._executables else ():
            if not self._is_hidden(path):
                self._allow(plan, path, _EXECUTE | _READ_FILE)

    def _is_hidden(self, path: str) -> bool:
        return self._hidden is not None and (path == self._hidden or path.startswith(f"{self._hidden}/"))

    def _all_but_devices(self) -> int:
        executing = _EXECUTE if self._executables is not None else 0
        return self._known & ~(_MAKE_CHAR | _MAKE_BLOCK | _IOCTL_DEV | executing)

    def _allow(self, plan: IsolationPlan, path: str, access: int) -> None:
        """The descriptor's place in the rule is where the call before it puts its result."""
        rule = ctypes.create_string_buffer(struct.pack("=Qi", access & self._known, 0), 12)
        descriptor = ctypes.c_int.from_buffer(rule, 8)
        plan.call("open", path, os.O_PATH | os.O_CLOEXEC, result=descriptor)
        beneath = kernel.LANDLOCK_RULE_PATH_BENEATH
        plan.call("syscall", kernel.SYS_LANDLOCK_ADD_RULE, self._ruleset, beneath, rule, 0)
        plan.call("close", descriptor)


def _in_root() -> list[str]:
    """Links need no rule: what counts is where they lead."""
    return [f"/{name}" for name in sorted(os.listdir("/")) if not os.path.islink(f"/{name}")]
