"""Streams that are made ahead: as those that are made of the descriptors that a program gets."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import fumehood

# In a process of its own: it is about descriptors 0, 1 and 2. `sys.path` has no site-packages, as that of a cell.
SCRIPT = """
import os, sys
sys.path.insert(0, sys.argv[1])
from guest.program.streams import open_streams, usual_streams

def described(streams):
    return [(s.name, s.fileno(), s.mode, s.encoding, s.errors, s.seekable(), s.write_through) for s in streams]

before = [os.readlink(f"/proc/self/fd/{number}") for number in range(3)], sorted(os.listdir("/proc/self/fd"))
made = usual_streams()
assert before == ([os.readlink(f"/proc/self/fd/{number}") for number in range(3)], sorted(os.listdir("/proc/self/fd")))
read, write = os.pipe()
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
os.dup2(write, 1)
os.dup2(write, 2)
assert described(made) == described(open_streams())
print("seen", file=made[1])
print("too", file=made[2])
assert os.read(read, 100) == b"seen\\ntoo\\n" and made[0].read() == ""
os.write(int(sys.argv[2]), b"ok")
"""


def test_streams_that_are_made_ahead_are_those_of_a_program_without_input(tmp_path: Path) -> None:
    read, write = os.pipe()
    try:
        file = (tmp_path / "input").open("w+")  # with positions, unlike a pipe
        argv = [sys.executable, "-I", "-S", "-c", SCRIPT, str(Path(fumehood.__file__).parent), str(write)]
        done = subprocess.run(argv, stdin=file, stdout=file, stderr=subprocess.PIPE, pass_fds=(write,), check=False)
        file.close()
        assert done.returncode == 0, done.stderr.decode()
        assert os.read(read, 10) == b"ok"
    finally:
        os.close(read)
        os.close(write)
