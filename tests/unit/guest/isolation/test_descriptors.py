"""The file service holds its conversation with the host, and nothing else of the process that it was born as."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

from fumehood.guest.contract import frames

BORN_WITH_MUCH = """
import os, sys
from fumehood.guest.files import service
kept = [os.dup(int(sys.argv[1])) for _ in range(400)]
service.become_service(int(sys.argv[1]))
"""


def test_a_file_service_keeps_its_conversation_and_nothing_else() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        command = [sys.executable, "-c", BORN_WITH_MUCH, str(theirs.fileno())]
        service = subprocess.Popen(command, pass_fds=(theirs.fileno(),), stderr=subprocess.PIPE)
        theirs.close()
        with service:
            host = frames.FrameSocket(ours)
            host.send({"do": "stat", "path": "/dev/null", "follow": False})
            answer = host.receive()
            assert answer
            assert answer[0]["done"]["kind"] == "device"
            folder = f"/proc/{service.pid}/fd"
            held = {int(name): os.readlink(f"{folder}/{name}") for name in os.listdir(folder)}
            assert {number: held.pop(number) for number in (0, 1, 2)} == dict.fromkeys((0, 1, 2), "/dev/null")
            assert [(number, target.partition(":")[0]) for number, target in held.items()] == [(3, "socket")]
            ours.shutdown(socket.SHUT_RDWR)
