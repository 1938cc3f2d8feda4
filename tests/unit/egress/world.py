"""A small internet: run in a network namespace of its own (`unshare -rn`), with another machine on a cable.

8.8.4.1 is this machine, 8.8.4.4 another one; both answer at port 7000. Prints what a program gets, as JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys

from unit.egress.places import Box, Upstream

OURS, THEIRS, PORT = "8.8.4.1", "8.8.4.4", 7000
SERVER = """
import socket, subprocess, sys
print("here", flush=True)
sys.stdin.readline()
for command in ("ip link set lo up", "ip addr add 8.8.4.4/24 dev v1", "ip link set v1 up"):
    subprocess.run(command.split(), check=True)
listener = socket.create_server(("8.8.4.4", 7000))
print("listening", flush=True)
while True:
    connection, _ = listener.accept()
    connection.sendall(b"the world")
    connection.close()
"""


def main() -> None:
    run("ip link set lo up")
    other = subprocess.Popen(
        ["unshare", "-n", sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdin is not None
    assert other.stdout is not None
    assert other.stdout.readline() == "here\n"
    run(f"ip link add v0 type veth peer name v1 netns {other.pid}")
    run(f"ip addr add {OURS}/24 dev v0")
    run("ip link set v0 up")
    other.stdin.write("\n")
    other.stdin.flush()
    assert other.stdout.readline() == "listening\n"
    try:
        with Upstream(lambda connection: connection.sendall(b"this machine"), place=(OURS, PORT)):
            print(json.dumps({"there": visit(THEIRS, False), "here": visit(OURS, False), "asked": visit(OURS, True)}))
    finally:
        other.kill()
        other.wait()


def visit(address: str, private: bool) -> list[str]:
    """What a program reads, and why it was refused if it was."""
    name = "api.example.com"
    with Box({"ports": [PORT]}, addresses={name: [address]}, private=private) as box:
        seen = box.sees(name, PORT).decode()
        return [seen, *box.whys()]


def run(command: str) -> None:
    subprocess.run(command.split(), check=True)


if __name__ == "__main__":
    main()
