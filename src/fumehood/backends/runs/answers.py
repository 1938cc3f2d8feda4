"""What a guest answers about a run, checked for its form before anything else reads it.

Other parts may take for granted what is written here. An answer of another form is one that says so: the run failed in
our own machinery, and a sentence tells what happened.
"""

from __future__ import annotations

import json
import os
from typing import Any

Answer = dict[str, Any]

_FAILED = {"failed": str, "detail": str}
_USAGE = {"cpu_ms": (int, float), "peak_memory_bytes": int}
_ENDED: dict[str, Any] = {
    **_USAGE,
    "status": (int, type(None)),
    "ended_by": str,
    "trouble": (dict, type(None)),
}
_TROUBLE: dict[str, Any] = {
    "refusal": (dict, type(None)),
    "processes": int,
    "exhausted": str,
    "disk_full": bool,
    "out_of_memory_kills": int,
    "refused_processes": (int, type(None)),
}
_REFUSALS = (_FAILED, {"refused": str})
# What every table, log and sum of these takes; more than any machine has. NaN is no number of this kind either.
_MOST = 2**53
_MISFORMED = {"failed": "reading a guest's answer", "detail": "it is not in the format"}


def parse_answer(data: bytes) -> Answer:
    """How a run ended, what a session has used (`usage`), or which step `failed`."""
    try:
        answer = json.loads(data)
    except (ValueError, RecursionError):
        return dict(_MISFORMED)
    return answer if _is_answer(answer) else dict(_MISFORMED)


def _is_answer(answer: Any) -> bool:
    if _has(answer, {"usage": dict}):
        return _has(answer["usage"], _USAGE)
    if not _has(answer, _ENDED):
        return _has(answer, _FAILED)
    return _is_status(answer["status"]) and _is_trouble(answer["trouble"], answer["status"])


def _is_status(status: int | None) -> bool:
    """None of a run that was ended; else what the kernel says of a process that has ended."""
    try:
        return status is None or status == 0 or os.waitstatus_to_exitcode(status) != 0
    except (ValueError, OverflowError):
        return False


def _is_trouble(trouble: Any, status: int | None) -> bool:
    """A program that failed has one."""
    if trouble is None:
        return not status
    refusal = trouble.get("refusal")
    return _has(trouble, _TROUBLE) and (refusal is None or any(_has(refusal, form) for form in _REFUSALS))


def _has(value: Any, form: dict[str, Any]) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() == form.keys()
        and all(isinstance(value[name], kinds) and _is_plain(value[name]) for name, kinds in form.items())
    )


def _is_plain(value: Any) -> bool:
    """Numbers are counts, which others add up: none of them takes anything away from a sum, or makes it useless."""
    return not isinstance(value, int | float) or 0 <= value <= _MOST
