"""Gives its streams and variables to a process that has loaded `hood` (`loaded_hood.py`), and ends as its command does.

It imports next to nothing, because it starts for every server that a client of a protocol starts by a command.
"""

import json
import os
import signal
import socket
import sys

_STATUS_BYTES = 32


def main(address: str, program: str, *arguments: str) -> int:
    wanted = {"program": program, "arguments": arguments, "environment": dict(os.environ), "folder": os.getcwd()}
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs, open(os.memfd_create("request"), "w+b") as file, socket.socket(socket.AF_UNIX) as server:
        file.write(json.dumps({**wanted, "owns_terminal": False, "owns_session": False, "ignored": []}).encode())
        file.flush()
        server.connect(address)
        socket.send_fds(server, [b"start"], [theirs.fileno(), file.fileno(), 0, 1, 2])
    process = int(ours.recv(_STATUS_BYTES))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: os.kill(process, number))
    for stream in (0, 1):
        os.close(stream)
    code = os.waitstatus_to_exitcode(int(ours.recv(_STATUS_BYTES)))
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
