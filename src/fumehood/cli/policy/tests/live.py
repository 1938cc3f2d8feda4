"""The tests of a policy in a real sandbox, as far as trying them does no harm.

No server is reached while the gateway does its work: a connection that the policy allows is tried up to the answer to
its name, and a request is sent only where the gateway reads it and is to refuse it. A command is run only if it is to
be refused. Nothing of the host's is changed. Amounts are asked for unless that would take long, or much of the machine.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

import anyio

from fumehood.cli.output import say
from fumehood.cli.policy.tests.probe import REFUSED
from fumehood.cli.policy.tests.suite import LiveResult
from fumehood.errors import SandboxError
from fumehood.policy import Policy
from fumehood.policy.attempts import Amount, HttpAttempt, parse_amount, parse_request
from fumehood.policy.decisions import TestResult, files
from fumehood.policy.egress import Rulebook
from fumehood.policy.hosts import endpoint, is_address, split_endpoint
from fumehood.policy.quantities import GIB, KIB, MIB
from fumehood.results import RunResult, Status
from fumehood.sandbox.async_sandbox import AsyncSandbox

_PROBE = Path(__file__).with_name("probe.py")
# What a run may print is the policy's to say, and can be little.
_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class Probe:
    kind: str
    target: str | tuple[str, bool, str, int, str]
    is_own: bool = False


@dataclass(frozen=True, slots=True)
class RefusedCommand:
    line: str


@dataclass(frozen=True, slots=True)
class Untried:
    """A test that was not tried."""

    reason: str


@dataclass(frozen=True, slots=True)
class Demand:
    resource: str
    amount: int


@dataclass(frozen=True, slots=True)
class _Manner:
    own_use: int
    beyond: int
    most: int
    """A test uses no more than this of the machine."""


_TIMES = frozenset({"timeout", "cpu_time"})
_MANNERS = {
    "memory": _Manner(own_use=16 * MIB, beyond=64 * MIB, most=GIB),
    "processes": _Manner(own_use=4, beyond=16, most=4096),
    "open_files": _Manner(own_use=8, beyond=8, most=65536),
    "disk": _Manner(own_use=64 * KIB, beyond=MIB, most=GIB),
    "inodes": _Manner(own_use=64, beyond=64, most=100_000),
    "output": _Manner(own_use=0, beyond=64 * KIB, most=64 * MIB),
}


def try_live(policy: Policy, results: list[TestResult]) -> dict[int, LiveResult]:
    """What was seen of each test, by its index."""
    return anyio.run(_try_live, policy, results)


async def _try_live(policy: Policy, results: list[TestResult]) -> dict[int, LiveResult]:
    plans = {result.index: plan(policy, result) for result in results}
    probes = [(index, found) for index, found in plans.items() if isinstance(found, Probe)]
    seen: dict[int, LiveResult] = {}
    async with AsyncSandbox(policy, progress=say) as box:
        for start in range(0, len(probes), _AT_ONCE):
            seen |= await _try_probes(box, dict(probes[start : start + _AT_ONCE]))
    for index, found in plans.items():
        if not isinstance(found, Probe):
            seen[index] = await _try_alone(policy, found)
    return seen


async def _try_alone(policy: Policy, found: Demand | RefusedCommand | Untried) -> LiveResult:
    """In a sandbox of its own: where the whole of it has the limit, one that asks for too much takes it along."""
    if isinstance(found, Untried):
        return LiveResult(None, found.reason)
    async with AsyncSandbox(policy) as box:
        return await (_try_demand(box, found) if isinstance(found, Demand) else _try_command(box, found))


def plan(policy: Policy, result: TestResult) -> Probe | Demand | RefusedCommand | Untried:
    """How to try a test, or why it is not tried."""
    expectation, is_allowed = result.expectation, result.decision.allowed
    target = expectation.target
    match expectation.kind:
        case "read" | "write":
            return Probe(expectation.kind, target, files.is_in_any(target, files.OWN))
        case "connect":
            return _plan_connection(*split_endpoint(target), is_allowed=is_allowed)
        case "http":
            return _plan_request(Rulebook(policy), parse_request(target), is_allowed=is_allowed)
        case "resource":
            found = plan_demand(policy, parse_amount(target))
            return found if isinstance(found, Demand) else Untried(found)
        case "command":
            return Untried("a command that is allowed would run") if is_allowed else RefusedCommand(target)
        case _:
            assert_never(expectation.kind)


def _plan_connection(host: str, port: int, *, is_allowed: bool) -> Probe | Untried:
    if not is_allowed:
        return Probe("connect", endpoint(host, port))
    if is_address(host):
        return Untried("an address that is allowed would be reached")
    return Probe("find", endpoint(host, port))


def _plan_request(book: Rulebook, request: HttpAttempt, *, is_allowed: bool) -> Probe | Untried:
    route = book.find_route(request.host, request.port)
    if route is None or not book.decide_connection(request.host, request.port).allowed:
        return Probe("connect", endpoint(request.host, request.port))
    if is_allowed:
        return Untried("a request that is allowed would reach the server")
    spoken = "tls" if request.secure else "http"
    if route.protocol != spoken or (request.secure and not route.reads_requests):
        return Untried("the gateway reaches the server before it sees that this is no such protocol")
    return Probe("request", (request.method, request.secure, request.host, request.port, request.target))


async def _try_probes(box: AsyncSandbox, probes: dict[int, Probe]) -> dict[int, LiveResult]:
    entries = [[probe.kind, probe.target, probe.is_own] for probe in probes.values()]
    result = await box.run(_program(), stdin=json.dumps(entries).encode())
    try:
        numbers: list[int] = json.loads(result.stdout)
    except ValueError:
        raise SandboxError(f"the program that tries files and connections {_ending(result)}") from None
    return {
        index: LiveResult("allow", "it worked") if number == 0 else LiveResult("deny", os.strerror(number))
        for index, number in zip(probes, numbers, strict=True)
    }


async def _try_demand(box: AsyncSandbox, demand: Demand) -> LiveResult:
    result = await box.run(_program(), args=[demand.resource, str(demand.amount)])
    if result.ok:
        return LiveResult("allow", "it was given")
    if result.exit_code == REFUSED or result.status is Status.RESOURCE_EXCEEDED:
        return LiveResult("deny", result.detail or "the kernel refused it")
    return LiveResult(None, f"the program that asks for it {_ending(result)}")


async def _try_command(box: AsyncSandbox, command: RefusedCommand) -> LiveResult:
    result = await box.run(command.line, language="bash")
    if result.status is Status.DENIED:
        return LiveResult("deny", result.detail)
    return LiveResult("allow", "the sandbox ran it")


def _program() -> bytes:
    return _PROBE.read_bytes()


def _ending(result: RunResult) -> str:
    words = result.detail or f"exited with code {result.exit_code}: {result.stderr.strip()[-200:]}"
    return f"did not come to its end: {words}"


def plan_demand(policy: Policy, amount: Amount) -> Demand | str:
    """How much to ask for, so that a test of the limit means something, or why nothing is asked for.

    A run uses a little of everything itself. So an amount within the limit is asked for without that little, and one
    beyond the limit only as far as is surely refused.
    """
    manner = _MANNERS.get(amount.name)
    if amount.name in _TIMES:
        return "it would take as long as it says"
    if manner is None:
        return f"only a larger program could show how much of {amount.name} there is"
    limit = int(getattr(policy.resources, amount.name))
    if min(limit, amount.number) > manner.most:
        return f"it would take too much of this machine to use that much {amount.name}"
    if amount.number > limit:
        return Demand(amount.name, min(int(amount.number), limit + manner.beyond))
    return Demand(amount.name, max(0, int(amount.number) - manner.own_use))
