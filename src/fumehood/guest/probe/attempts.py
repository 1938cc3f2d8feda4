"""One attempt at an operation in a child process, which may change that process in ways that cannot be undone."""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
from collections.abc import Callable
from typing import NoReturn

from ..contract.probe import ProbeAnswer
from ..isolation import kernel
from ..isolation.steps import StepError

_PATIENCE_SECONDS = 5.0


def attempt(function: Callable[[], int | None]) -> ProbeAnswer:
    """Call it in a child; when this returns, the child and all that it started are gone."""
    read, write = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        _answer(function, write)
    os.setpgid(child, child)
    os.close(write)
    try:
        if not select.select([read], [], [], _PATIENCE_SECONDS)[0]:
            return {"errno": 0, "error": f"no answer after {_PATIENCE_SECONDS:.0f} s"}
        data = os.read(read, 65536)
        return json.loads(data) if data else {"errno": 0, "error": "the process that tried it was killed"}
    finally:
        os.close(read)
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _answer(function: Callable[[], int | None], pipe: int) -> NoReturn:
    answer: ProbeAnswer
    try:
        kernel.die_with_parent()
        answer = {"value": function() or 0}
    except OSError as error:
        answer = {"errno": error.errno or 0, "error": error.strerror or str(error)}
    except StepError as error:
        answer = {"errno": ctypes.get_errno(), "error": error.detail}
    except Exception as error:
        answer = {"errno": 0, "error": f"{type(error).__name__}: {error}"}
    os.write(pipe, json.dumps(answer).encode())
    # Ends with the whole group, children that it forgot included.
    signal.pause()
    os._exit(1)


def in_child(function: Callable[[], int | None]) -> None:
    answer = attempt(function)
    if "error" in answer:
        raise OSError(answer.get("errno", 0), answer["error"])


def expect(condition: bool, otherwise: str) -> None:
    if not condition:
        raise OSError(0, otherwise)
