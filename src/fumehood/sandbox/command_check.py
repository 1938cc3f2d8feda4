"""Checks a run against the policy's `commands`, on the host, before anything starts.

Command lines (`argv`, and source in bash or sh) are read and judged. Code in other languages is not a command line; the
kernel decides what it may execute. Reading takes time, so that it happens in a thread of its own.
"""

from __future__ import annotations

import secrets

import anyio.to_thread

from fumehood.backends.executables import executables
from fumehood.backends.interface import RunRequest
from fumehood.backends.languages import find_language
from fumehood.policy import Policy
from fumehood.results import Cause, Denial, RunResult, Status

DENIED_EXIT_CODE = 126
_SHELLS = {"bash": True, "sh": False}


async def denials(policy: Policy, request: RunRequest) -> tuple[Denial, ...]:
    """Why the run must not begin; empty when it may."""
    if policy.commands.is_open:
        return ()
    return await anyio.to_thread.run_sync(_denials, policy, request)


def _denials(policy: Policy, request: RunRequest) -> tuple[Denial, ...]:
    return (*_line_denials(policy, request), *_kernel_denials(policy, request))


def denied_result(refused: tuple[Denial, ...], policy: Policy) -> RunResult:
    first, *others = map(str, refused)
    more = f" (and {len(others)} more)" if others else ""
    return RunResult(
        status=Status.DENIED,
        cause=Cause.POLICY,
        exit_code=DENIED_EXIT_CODE,
        stdout_bytes=b"",
        stderr_bytes=b"",
        truncated=False,
        duration_ms=0.0,
        cpu_ms=0.0,
        peak_memory_bytes=0,
        run_id=f"run_{secrets.token_hex(8)}",
        policy_digest=policy.digest,
        detail=f"{first}{more}",
        denials=refused,
    )


def _line_denials(policy: Policy, request: RunRequest) -> tuple[Denial, ...]:
    from fumehood.policy.commands import WRITABLE, judge, judge_argv
    from fumehood.policy.commands.decision import shortened

    writable = (*WRITABLE, *(mount.target for mount in policy.filesystem.mounts if mount.mode == "rw"))
    if request.source is None:
        decision = judge_argv(policy.commands, request.arguments, writable=writable, cwd=request.cwd)
    elif request.language not in _SHELLS:
        return ()
    elif request.script_name.startswith("/"):
        why = "the file that lies there may be another than the one that is judged"
        return (Denial("command", request.script_name, why, remedy="give the script without a path"),)
    else:
        try:
            line = request.source.decode()
        except UnicodeDecodeError as error:
            why = f"the script is not UTF-8 (byte {error.start}), so that it cannot be judged"
            return (Denial("command", request.script_name, why, remedy="write it in UTF-8"),)
        decision = judge(policy.commands, line, is_bash=_SHELLS[request.language], writable=writable, cwd=request.cwd)
    return tuple(
        Denial("command", shortened(denied.attempt.text), denied.reason, denied.rule, denied.fix)
        for denied in decision.denied
    )


def _kernel_denials(policy: Policy, request: RunRequest) -> tuple[Denial, ...]:
    """What the language itself would have to execute: without these words the run would end in an error of its own."""
    named = executables(policy)
    if named is None or request.source is None:
        return ()
    language = find_language(request.language)
    if language.toolchain is not None:
        why = "the program that a compiler makes is not one that the kernel lets be executed"
        return (Denial("command", language.name, why, remedy="use commands.enforce: parse"),)
    allowed = {name.rpartition("/")[2] for name in named}
    missing = [name for command in language.commands if (name := command.rpartition("/")[2]) not in allowed]
    why = "the kernel lets only named programs be executed"
    return tuple(Denial("command", name, why, remedy=f"add {name!r} to commands.allow") for name in missing)
