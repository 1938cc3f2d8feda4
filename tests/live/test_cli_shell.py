"""`hood shell`: this terminal in front, a shell in a sandbox behind it."""

from __future__ import annotations

import signal

import pytest
from live.cli_host import assert_nothing_is_left, open_hood, open_terminal

PROMPT = b"$ "
PLAIN = ("shell", "--env", "PS1=$ ", "--", "bash", "--norc", "-i")


def test_what_is_typed_is_done_and_the_exit_code_is_the_shells() -> None:
    with open_terminal(*PLAIN) as terminal:
        terminal.wait_for(PROMPT)
        terminal.type(b"echo $((6 * 7)); pwd\n")
        terminal.wait_for(b"42\r\n/workspace\r\n")
        terminal.type(b"exit 9\n")
        assert terminal.wait_for_end() == 9
    assert_nothing_is_left(terminal.process.pid)


def test_ctrl_c_is_the_shells_and_ctrl_d_leaves() -> None:
    with open_terminal(*PLAIN) as terminal:
        terminal.wait_for(PROMPT)
        terminal.type(b"sh -c 'echo st\"\"arted; exec sleep 1000'\n")
        terminal.wait_for(b"started\r\n")
        terminal.type(b"\x03")
        terminal.wait_for(b"^C")
        terminal.type(b"echo code $?; PS1=ag''ain\n")
        terminal.wait_for(b"code 130\r\n")
        terminal.wait_for(b"again")  # before the prompt the terminal is not the shell's yet, and would swallow the end
        terminal.type(b"\x04")
        assert terminal.wait_for_end() == 0
    assert_nothing_is_left(terminal.process.pid)


def test_the_shell_learns_the_size_of_the_window() -> None:
    with open_terminal(*PLAIN) as terminal:
        terminal.wait_for(PROMPT)
        terminal.resize(97, 31)
        terminal.type(b"until stty size | grep 97; do :; done\n")
        terminal.wait_for(b"31 97\r\n")
        terminal.type(b"exit\n")
        assert terminal.wait_for_end() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_hood_ends_the_shell(number: signal.Signals) -> None:
    with open_terminal(*PLAIN) as terminal:
        terminal.wait_for(PROMPT)
        terminal.process.send_signal(number)
        assert terminal.wait_for_end() == 130
        assert b"cancelled" in terminal.seen
    assert_nothing_is_left(terminal.process.pid)


def test_a_terminal_that_goes_away_ends_the_shell() -> None:
    with open_terminal(*PLAIN) as terminal:
        terminal.wait_for(PROMPT)
        terminal.hang_up()
        terminal.process.wait(30)
    assert_nothing_is_left(terminal.process.pid)


def test_without_a_terminal_it_says_what_to_use() -> None:
    with open_hood("shell") as process:
        _, said = process.communicate(b"", timeout=60)
        assert process.returncode == 2
        assert b"needs a terminal" in said


def test_the_time_limit_of_a_policy_holds() -> None:
    with open_terminal("shell", "--timeout", "2s", "--", "sh") as terminal:
        assert terminal.wait_for_end() == 124
        assert b"timeout" in terminal.seen
