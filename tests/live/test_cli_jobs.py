"""`hood run` as a job of an interactive shell."""

from __future__ import annotations

import os
import pty
import shlex
import subprocess
from pathlib import Path

from live.cli_host import HOOD, Terminal

PROGRAM = """
import os, time
print("begun", flush=True)
while not os.path.exists("/seen/go"): time.sleep(0.01)
print("ended", repr(open(0).read()))
"""


def test_a_job_in_the_background_leaves_what_is_typed_to_the_shell(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text(PROGRAM)
    job = shlex.join([*HOOD, "run", "-v", f"{tmp_path}:/seen", str(tmp_path / "x.py")])
    ours, theirs = pty.openpty()
    environment = {**os.environ, "FUMEHOOD_KEEPER": "off", "PS1": "", "TERM": "dumb"}
    shell = ["setsid", "--ctty", "bash", "--norc", "--noprofile", "-i"]
    with subprocess.Popen(shell, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        terminal = Terminal(ours, process)
        try:
            terminal.type(f"{job} &\n".encode())
            terminal.wait_for(b"begun\r\n")
            terminal.type(b"echo $((6 * 7)); touch %b/go\n" % bytes(tmp_path))
            terminal.wait_for(b"42\r\n")
            terminal.wait_for(b"ended ''\r\n")
        finally:
            process.kill()
            os.close(ours)
