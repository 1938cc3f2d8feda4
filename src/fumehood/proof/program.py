"""Programs of the trials. Each reports every attempt: one that broke off cannot pass for one that was stopped."""

from __future__ import annotations

import json
import secrets
import textwrap
from collections.abc import Iterable, Mapping

from fumehood.proof.trial import BrokenError, NotTestedError
from fumehood.results import RunResult

# A refusal is an error of the kernel, or memory that is not given. Any other exception breaks the program off.
_TOOLS = """
import ctypes, errno, json, os, socket, stat, sys, time

tried = {}
libc = ctypes.CDLL(None, use_errno=True)


def attempt(name, action):
    try:
        got = action()
    except MemoryError:
        tried[name] = "refused: MemoryError"
    except OSError as error:
        tried[name] = "refused: " + errno.errorcode.get(error.errno, str(error))
    else:
        tried[name] = f"got: {got!r}"[:200]


def call(number, *arguments):
    libc.syscall.restype = ctypes.c_long
    widened = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = libc.syscall(ctypes.c_long(number), *widened)
    if result < 0:
        raise OSError(ctypes.get_errno(), "")
    return result


def read(path):
    with open(path, "rb") as file:
        return file.read(100)


def write(path):
    with open(path, "xb") as file:
        return file.write(b"hood prove")
"""
# The needle is turned around byte by byte, or a program would find its own source.
SEARCH_MEMORY = """
table = bytes(byte ^ 0xFF for byte in range(256))

def holds(data):
    return turned in data.translate(table)

def in_memory():
    with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as memory:
        for line in maps:
            start, end = (int(edge, 16) for edge in line.split()[0].split("-"))
            if "r" in line.split()[1] and "[v" not in line:
                memory.seek(start)
                if holds(memory.read(end - start)):
                    return True
    return False

"""
REFUSED, GOT = "refused: ", "got: "


def turned_around(needle: bytes) -> dict[str, bytes]:
    """What `SEARCH_MEMORY` looks for, as a fact of its program."""
    return {"turned": bytes(byte ^ 0xFF for byte in needle)}


class Program:
    """`facts` are literals at its start: paths, ports and names that the attacker knows."""

    def __init__(self, code: str, **facts: object) -> None:
        self._end = f"the program ran to its end {secrets.token_hex(8)}: "
        known = "".join(f"{name} = {value!r}\n" for name, value in facts.items())
        ending = f"print(flush=True)\nprint({self._end!r} + json.dumps(tried), flush=True)\n"
        self.source = f"{_TOOLS}\n{known}\n{textwrap.dedent(code)}\n{ending}"

    def tried(self, result: RunResult) -> dict[str, str]:
        """What each attempt came to; a program that did not get there has shown nothing."""
        before, end, told = result.stdout.rpartition(self._end)
        if not end:
            raise BrokenError(
                f"the program of the trial broke off: {result.detail or result.stderr[-300:] or before[-300:]}"
            )
        if result.truncated:
            raise NotTestedError("the output limit of the policy is too small for what the trial reports")
        found: dict[str, str] = json.loads(told)
        return found


def require_refusals(tried: Mapping[str, str], names: Iterable[str]) -> str:
    """All of the attempts were made and each was refused; says how."""
    names = list(names)
    if missing := [name for name in names if name not in tried]:
        raise BrokenError(f"not tried: {', '.join(missing)}")
    if through := [f"{name} ({answer})" for name, answer in tried.items() if not answer.startswith(REFUSED)]:
        raise BrokenError(f"not refused: {'; '.join(through)}")
    return in_words(tried)


def require_success(tried: Mapping[str, str], names: Iterable[str]) -> str:
    names = list(names)
    if failed := [f"{name} ({tried.get(name, 'not tried')})" for name in names if not _worked(tried, name)]:
        raise BrokenError(f"did not work: {'; '.join(failed)}")
    return in_words({name: tried[name] for name in names})


def in_words(tried: Mapping[str, str]) -> str:
    """What each attempt came to, for a person: an error's name, or what the program got."""
    told = ((name, answer.removeprefix(REFUSED).removeprefix(GOT)) for name, answer in tried.items())
    return "; ".join(f"{name}: {'done' if answer == 'None' else answer}" for name, answer in told)


def _worked(tried: Mapping[str, str], name: str) -> bool:
    return tried.get(name, "").startswith(GOT)
