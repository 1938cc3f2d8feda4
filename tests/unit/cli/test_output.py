"""Refusals as lines: one each where a program reads them, what would help below where a person could not see it."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios

CODE = """
from fumehood.cli.output import print_denials
from fumehood.results import Denial
help = "add {host: a.example, ports: [443]} to network.allow"
first = Denial("connect", "connect a.example:443", "no rule opens this name", remedy=help, count=2)
print_denials((first, Denial("dns", "dns \\x1b[2J", "no")))
"""


def test_in_a_file_each_is_one_line() -> None:
    said = subprocess.run([sys.executable, "-c", CODE], stderr=subprocess.PIPE, check=True).stderr.decode()
    first, second = said.splitlines()
    assert first.startswith(
        "hood: denied: connect a.example:443: no rule opens this name (2 times); add {host: a.example"
    )
    assert first.endswith("ports: [443]} to network.allow")
    assert second == "hood: denied: dns ⟨U+001B⟩[2J: no"


def shown(columns: int) -> list[str]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    subprocess.run([sys.executable, "-c", CODE], stderr=theirs, stdout=subprocess.DEVNULL, check=True)
    said = os.read(ours, 4096).decode()
    os.close(ours)
    os.close(theirs)
    return said.splitlines()


def test_on_a_narrow_terminal_what_would_help_has_a_line_of_its_own() -> None:
    assert shown(80) == [
        "hood: denied: connect a.example:443: no rule opens this name (2 times);",
        "      add {host: a.example, ports: [443]} to network.allow",
        "hood: denied: dns ⟨U+001B⟩[2J: no",
    ]
    assert len(shown(200)) == 2
