"""Whether a process has ended is said only where it can be known."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from requirements import require

from fumehood.host.processes import identity, is_alive, is_gone, namespace

ASK = (
    "import sys; from fumehood.host.processes import is_alive, is_gone; "
    "print(is_alive(sys.argv[1]), is_gone(sys.argv[1]))"
)


def asked(*command: str) -> str:
    return subprocess.run([*command], check=True, capture_output=True, text=True).stdout


def test_a_process_that_runs_is_alive_and_one_that_was_waited_for_is_gone() -> None:
    with subprocess.Popen(["sleep", "100"]) as process:
        known = identity(process.pid)
        assert (is_alive(known), is_gone(known)) == (True, False)
        process.kill()
    assert (is_alive(known), is_gone(known)) == (False, True)


def test_a_number_that_came_back_is_another_process() -> None:
    earlier = identity(os.getpid()).rpartition(" ")[0] + " 1"
    assert (is_alive(earlier), is_gone(earlier)) == (False, True)


@pytest.mark.parametrize("known", ["", "x", "1 2 3", "another-boot 4026531836 5 6"])
def test_of_a_process_elsewhere_nothing_is_known(known: str) -> None:
    assert (is_alive(known), is_gone(known)) == (False, False)


@pytest.mark.parametrize("proc", ["--mount-proc", "--kill-child"])
def test_of_a_process_in_another_namespace_nothing_is_known(proc: str) -> None:
    """Whether or not /proc is that of the namespace."""
    require(os.geteuid() == 0, "making a process namespace needs root")
    here = identity(os.getpid())
    assert asked("unshare", "--pid", "--fork", proc, sys.executable, "-c", ASK, here) == "False False\n"
    ask = "import os; from fumehood.host.processes import identity; print(identity(os.getpid()))"
    there = asked("unshare", "--pid", "--fork", proc, sys.executable, "-c", ask).strip()
    assert (is_alive(there), is_gone(there)) == (False, False)


def test_a_process_that_is_hidden_from_us_is_not_taken_for_gone() -> None:
    require(os.geteuid() == 0, "hiding processes needs root")
    known = identity(os.getpid())
    # The interpreter and the package may be where no other user gets: all that it asks is loaded before it is one.
    become = "import os; os.setgroups([]); os.setresgid(12345, 12345, 12345); os.setresuid(12345, 12345, 12345)"
    command = f'mount -t proc -o hidepid=2 proc /proc && exec {sys.executable} -c "$0" "$1"'
    seen, hidden = asked("unshare", "--mount", "sh", "-c", command, f"{ASK}; {become}; {ASK}", known).splitlines()
    assert (seen, hidden) == ("True False", "False False")


def test_a_namespace_has_one_name() -> None:
    assert namespace() == str(os.stat("/proc/self/ns/pid").st_ino)
