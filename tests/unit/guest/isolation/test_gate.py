"""The gate on a real kernel, in a process of its own: what it makes is the call that was asked for."""

import subprocess
import sys

import pytest

from fumehood.guest.isolation.seccomp import build_filter
from fumehood.guest.isolation.syscall_filter import install_filter

BEHIND_A_FILTER = """
import errno, os, sys
from fumehood.guest.isolation import kernel
from fumehood.guest.isolation.gate import SyscallGate
from fumehood.guest.isolation.seccomp import build_filter
from fumehood.guest.isolation.syscall_filter import install_filter

gate = SyscallGate()
kernel.set_option(kernel.PR_SET_NO_NEW_PRIVS, 1)
install_filter(build_filter(os.uname().machine, is_gated=True), gate)
try:
    kernel.setns(-1, 0)
except OSError as error:
    print("without:", errno.errorcode[error.errno])
kernel.set_up_through(gate.call)
try:
    kernel.setns(-1, 0)
except OSError as error:
    print("with:", errno.errorcode[error.errno])
kernel.unmap_memory(*gate.page)
sys.stdout.flush()
gate.call(0)
"""


def test_a_call_through_the_gate_passes_the_filter_until_the_gate_is_closed() -> None:
    done = subprocess.run([sys.executable, "-c", BEHIND_A_FILTER], capture_output=True, text=True)
    assert done.stdout.splitlines() == ["without: EPERM", "with: EBADF"]
    assert done.returncode == -11, done.stderr  # SIGSEGV: there is nothing any more


def test_a_gated_filter_is_not_installed_without_a_gate() -> None:
    with pytest.raises(ValueError, match="gate"):
        install_filter(build_filter("x86_64", is_gated=True))
