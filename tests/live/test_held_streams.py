"""What a run writes ends with the run, whoever else has got hold of its standard streams meanwhile."""

from __future__ import annotations

import anyio
import pytest

from fumehood import AsyncSandbox, Policy

HOLDS = """
import os, socket, time
with socket.socket(socket.AF_UNIX) as listener:
    listener.bind("meeting")
    listener.listen()
    print("up", flush=True)
    line, _ = listener.accept()
    _, held, _, _ = socket.recv_fds(line, 1, 2)
input()
try:
    # A child of the host's has a copy of every descriptor from its birth until it executes its program.
    for _ in range(100):
        os.write(held[0], b"written by another run")
        time.sleep(0.02)
    print("written")
except BrokenPipeError:
    print("closed")
"""
GIVES = """
import socket
line = socket.socket(socket.AF_UNIX)
line.connect("meeting")
socket.send_fds(line, [b"x"], [1, 2])
print("mine")
"""


@pytest.mark.anyio
async def test_a_run_is_over_although_another_holds_its_streams() -> None:
    async with AsyncSandbox(Policy(resources={"timeout": "20s"})) as box:
        holder = await box.start(HOLDS, env={"PYTHONWARNINGS": "ignore"})
        async for _ in holder.stream():
            break
        with anyio.fail_after(10):
            result = await box.run(GIVES)
        assert (result.ok, result.stdout) == (True, "mine\n")
        await holder.write("go on\n")
        assert (await holder.wait()).stdout.endswith("closed\n")
