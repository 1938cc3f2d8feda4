"""Our seccomp rules in the form that an engine takes: for everything in the container, the guest included.

An engine's profile can say less than a filter: a value can be required, but not forbidden among others. A rule that
cannot be said is left open here and closed by the exact filter that the guest puts on every program: `unsaid` names
them, and a test keeps that list short. The one call that installs that filter is open to the guest as well.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from typing import Any

from fumehood.guest.contract.syscalls.decisions import ALLOW, WORD, Decision, SyscallAction, SyscallCheck
from fumehood.guest.contract.syscalls.profile import ABSENT, RULES

_ERROR_BITS = 0xFFFF
_PR_SET_SECCOMP = 22
_FOR_THE_GUEST: tuple[tuple[Decision, str], ...] = ((SyscallCheck(0, (_PR_SET_SECCOMP,), ALLOW, ABSENT), "prctl"),)
_ARCHITECTURES = {"x86_64": "SCMP_ARCH_X86_64", "aarch64": "SCMP_ARCH_AARCH64"}

Condition = dict[str, Any]
Rule = dict[str, Any]


class _Inexpressible(Exception):
    pass


def seccomp_profile(machine: str) -> str:
    """The seccomp profile as JSON, for `SecurityOpt`. An engine without `defaultErrnoRet` refuses with EPERM."""
    syscalls = [rule for decision, names in (*RULES, *_FOR_THE_GUEST) for rule in _rules(decision, names.split())]
    return json.dumps(
        {
            "defaultAction": "SCMP_ACT_ERRNO",
            "defaultErrnoRet": errno.ENOSYS,
            "architectures": [_ARCHITECTURES[machine]],
            "syscalls": syscalls,
        }
    )


def unsaid() -> list[str]:
    """Calls whose arguments this profile leaves to the guest's own filter."""
    return [name for decision, names in RULES if not _is_expressible(decision) for name in names.split()]


def _is_expressible(decision: Decision) -> bool:
    try:
        list(_allowed(decision, []))
    except _Inexpressible:
        return False
    return True


def _rules(decision: Decision, names: list[str]) -> Iterator[Rule]:
    if decision == ABSENT:
        return  # what is not named does not exist
    if isinstance(decision, SyscallAction) and decision != ALLOW:
        yield {"names": names, "action": "SCMP_ACT_ERRNO", "errnoRet": decision.value & _ERROR_BITS}
        return
    if not _is_expressible(decision):
        yield {"names": names, "action": "SCMP_ACT_ALLOW"}
        return
    for conditions in _allowed(decision, []):
        yield {"names": names, "action": "SCMP_ACT_ALLOW", "args": conditions}


def _allowed(decision: Decision, met: list[Condition]) -> Iterator[list[Condition]]:
    """Every way to an ALLOW, as conditions that all have to hold; a call is allowed if one of the ways is open.

    The way through a check that failed does not say that it failed, which no condition could. It need not: where the
    check leads to an ALLOW when it holds, the ways together still allow the same calls.
    """
    if isinstance(decision, SyscallAction):
        if decision == ALLOW:
            yield met
        return
    if not _leads_to_allow(decision):
        raise _Inexpressible
    for value in decision.values:
        yield from _allowed(decision.then, [*met, _condition(decision, value)])
    yield from _allowed(decision.otherwise, met)


def _leads_to_allow(check: SyscallCheck) -> bool:
    """Whether more is allowed when it holds than when it does not; the other way round it cannot be said."""
    return check.then == ALLOW or isinstance(check.then, SyscallCheck)


def _condition(check: SyscallCheck, value: int) -> Condition:
    shift = 32 if check.is_upper_half else 0
    return {
        "index": check.argument,
        "value": (check.mask & WORD) << shift,
        "valueTwo": value << shift,
        "op": "SCMP_CMP_MASKED_EQ",
    }
