"""Where attacks are carried out: runs a hostile program in a sandbox and hands back what it got hold of.

A program leaves its booty in `found`. That arrives together with a word that is printed last, so a program that broke
off early, or never ran, can't pass for one that was stopped.
"""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from anyio.abc import TaskStatus

from fumehood import AsyncSandbox, Cause, Finished, RunResult, Stdout
from fumehood.guest.isolation.seccomp import numbers_aarch64, numbers_x86_64

ENDED = "the attack ran to its end: "

# What every attack has at hand. `outcome` tells a refusal (the error's name) from a success (GOT and what it got).
TOOLS = """
import ctypes, errno, fcntl, json, mmap, os, resource, signal, socket, stat, struct, sys

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


def outcome(action):
    try:
        return f"GOT {action()!r}"[:400]
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))


def call(number, *arguments):
    widened = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = libc.syscall(ctypes.c_long(number), *widened)
    if result < 0:
        raise OSError(ctypes.get_errno(), "")
    return result


def write(path, text):
    descriptor = os.open(path, os.O_WRONLY)
    try:
        return os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def in_child(action):
    child = os.fork()
    if child == 0:
        try:
            action()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""


# Searches the program's own memory for a secret that it is told in two halves.
SCAN_MEMORY = """
    # The needle is never in one piece here, or it would find itself.
    found = 0
    with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as memory:
        for line in maps:
            start, end = (int(edge, 16) for edge in line.split()[0].split("-"))
            if "r" not in line.split()[1] or "[v" in line:
                continue
            memory.seek(start)
            data = memory.read(end - start)
            position = data.find(head)
            while position >= 0:
                found += data[position + len(head):][:len(tail)] == tail
                position = data.find(head, position + 1)
"""


def program(code: str, **known: object) -> str:
    """The attack's whole source. What the attacker is told beforehand (paths, ports) are literals at its start."""
    facts = "".join(f"{name} = {value!r}\n" for name, value in known.items())
    return f"{TOOLS}\n{facts}\n{textwrap.dedent(code)}\nprint(flush=True)\nprint({ENDED!r} + json.dumps(found))\n"


def booty(result: RunResult) -> Any:
    assert ENDED in result.stdout, f"the attack broke off: {result}"
    return told(result.stdout)


def told(stdout: str) -> Any:
    assert ENDED in stdout, f"the attack broke off: {stdout!r}"
    return json.loads(stdout.rpartition(ENDED)[2])


async def attack(sandbox: AsyncSandbox, code: str, **known: object) -> Any:
    return booty(await sandbox.run(program(code, **known)))


@asynccontextmanager
async def lingering_attack(sandbox: AsyncSandbox, code: str, **known: object) -> AsyncIterator[Any]:
    """What an attack found; its processes live on until the block ends."""
    read, write = os.pipe()

    async def follow(*, task_status: TaskStatus[Any]) -> None:
        output, is_told = b"", False
        nonlocal result
        async for event in sandbox.stream(program(code, **known) + "sys.stdin.read()\n", stdin=read):
            result = event.result if isinstance(event, Finished) else None
            output += event.data if isinstance(event, Stdout) else b""
            if not is_told and ENDED.encode() in output and output.endswith(b"\n"):
                task_status.started(told(output.decode()))
                is_told = True

    failure: BaseException | None = None
    result: RunResult | None = None
    try:
        async with anyio.create_task_group() as tasks:
            try:
                yield await tasks.start(follow)
            except (AssertionError, pytest.fail.Exception) as error:
                failure = error  # to be seen as it is, not as one of a group
            finally:
                os.close(write)
    finally:
        os.close(read)
    if failure:
        raise failure
    assert result is not None
    assert result.cause is Cause.EXIT  # nobody ended it before


def number_of(call: str) -> int:
    """The system call's number on this machine."""
    tables = {"x86_64": numbers_x86_64.NUMBERS, "aarch64": numbers_aarch64.NUMBERS}
    numbers = tables[os.uname().machine]
    if call not in numbers:
        pytest.skip(f"this machine has no system call {call}")
    return numbers[call]
