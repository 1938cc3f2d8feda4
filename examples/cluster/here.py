"""A cluster on this machine, by one command: NATS, a server and a worker, each a process of its own: here.py

    python examples/cluster/here.py 'print(6 * 7)'

Makes the cluster in a folder that is removed afterwards, starts the three, runs the program on the worker, ends them.
docs/many-machines.md has the same commands for machines that are apart; deploy/compose-cluster.yaml for containers.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

HOOD = [sys.executable, "-m", "fumehood"]


def hood(*words: str, **variables: str) -> str:
    """What a command prints."""
    command, environment = [*HOOD, *words], os.environ | variables
    return subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout


@contextmanager
def staying(*words: str, until: str) -> Iterator[str]:
    """A process that runs until the block ends; yields what it has printed when it is ready."""
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert process.stdout is not None
        printed = ""
        while until not in printed:
            line = process.stdout.readline()
            if not line:
                raise SystemExit(f"{words[0]} has ended:\n{printed}")
            printed += line
        yield printed
    finally:
        process.terminate()
        process.communicate()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def main(program: str) -> None:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        place = str(Path(folder, "cluster"))
        settings = Path(folder, "server.yaml")
        settings.write_text(f"state: {folder}/server\nstrict: false\n")
        hood("cluster", "init", "--here", "--listen", f"127.0.0.1:{free_port()}", "--folder", place)
        stack.enter_context(staying("nats-server", "-c", f"{place}/nats/nats.conf", until="Server is ready"))
        serve = ["serve", "--cluster", place, "--config", str(settings), "--listen", "127.0.0.1:0", "--init", "acme"]
        printed = stack.enter_context(staying(*HOOD, *serve, until="listening at"))
        token = Path(folder, "w1.token")
        token.write_text(hood("cluster", "token", "w1", "--folder", place))
        worker = ["worker", "--join", str(token), "--folder", f"{folder}/w1", "--drain", "1s"]
        stack.enter_context(staying(*HOOD, *worker, until="is ready"))
        # The address of the server, and a key of the tenant.
        variables = dict(line[7:].split("=", 1) for line in printed.splitlines() if line.startswith("export "))
        print(hood("run", "-c", program, **variables), end="")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "print(6 * 7)")
