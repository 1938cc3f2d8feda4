"""The tests of a policy in a real sandbox, as far as trying them harms nobody.

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

from fumehood.cli.messages import say
from fumehood.cli.policy_tests.demand import REFUSED
from fumehood.cli.policy_tests.demands import Demand, plan_demand
from fumehood.cli.policy_tests.examining import Seen
from fumehood.errors import SandboxError
from fumehood.policy import Policy
from fumehood.policy.amounts import parse_amount
from fumehood.policy.egress import Rulebook
from fumehood.policy.hosts import endpoint, is_address, split_endpoint
from fumehood.policy.rulings import places
from fumehood.policy.testing import TestResult
from fumehood.policy.urls import Request, parse_request
from fumehood.results import RunResult, Status
from fumehood.sandbox.sandbox import AsyncSandbox

_FOLDER = Path(__file__).parent
# What a run may print is the policy's to say, and can be little.
_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class Probe:
    kind: str
    target: str | tuple[str, bool, str, int, str]
    is_own: bool = False


@dataclass(frozen=True, slots=True)
class Command:
    line: str


@dataclass(frozen=True, slots=True)
class Spared:
    """Not tried."""

    reason: str


def rehearse(policy: Policy, results: list[TestResult]) -> dict[int, Seen]:
    """What was seen of each test, by its index."""
    return anyio.run(_rehearse, policy, results)


async def _rehearse(policy: Policy, results: list[TestResult]) -> dict[int, Seen]:
    plans = {result.index: plan(policy, result) for result in results}
    probes = [(index, found) for index, found in plans.items() if isinstance(found, Probe)]
    seen: dict[int, Seen] = {}
    async with AsyncSandbox(policy, progress=say) as box:
        for start in range(0, len(probes), _AT_ONCE):
            seen |= await _try_probes(box, dict(probes[start : start + _AT_ONCE]))
    for index, found in plans.items():
        if not isinstance(found, Probe):
            seen[index] = await _try_alone(policy, found)
    return seen


async def _try_alone(policy: Policy, found: Demand | Command | Spared) -> Seen:
    """In a sandbox of its own: where the whole of it has the limit, one that asks for too much takes it along."""
    if isinstance(found, Spared):
        return Seen(None, found.reason)
    async with AsyncSandbox(policy) as box:
        return await (_try_demand(box, found) if isinstance(found, Demand) else _try_command(box, found))


def plan(policy: Policy, result: TestResult) -> Probe | Demand | Command | Spared:
    """How to try a test, or why it is not tried."""
    expectation, is_allowed = result.expectation, result.decision.allowed
    target = expectation.target
    match expectation.kind:
        case "read" | "write":
            return Probe(expectation.kind, target, places.is_in_any(target, places.OWN))
        case "connect":
            return _plan_connection(*split_endpoint(target), is_allowed=is_allowed)
        case "http":
            return _plan_request(Rulebook(policy), parse_request(target), is_allowed=is_allowed)
        case "resource":
            found = plan_demand(policy, parse_amount(target))
            return found if isinstance(found, Demand) else Spared(found)
        case "command":
            return Spared("a command that is allowed would run") if is_allowed else Command(target)
        case _:
            assert_never(expectation.kind)


def _plan_connection(host: str, port: int, *, is_allowed: bool) -> Probe | Spared:
    if not is_allowed:
        return Probe("connect", endpoint(host, port))
    if is_address(host):
        return Spared("an address that is allowed would be reached")
    return Probe("find", endpoint(host, port))


def _plan_request(book: Rulebook, request: Request, *, is_allowed: bool) -> Probe | Spared:
    route = book.find_route(request.host, request.port)
    if route is None or not book.decide_connection(request.host, request.port).allowed:
        return Probe("connect", endpoint(request.host, request.port))
    if is_allowed:
        return Spared("a request that is allowed would reach the server")
    spoken = "tls" if request.secure else "http"
    if route.protocol != spoken or (request.secure and not route.reads_requests):
        return Spared("the gateway reaches the server before it sees that this is no such protocol")
    return Probe("request", (request.method, request.secure, request.host, request.port, request.target))


async def _try_probes(box: AsyncSandbox, probes: dict[int, Probe]) -> dict[int, Seen]:
    entries = [[probe.kind, probe.target, probe.is_own] for probe in probes.values()]
    result = await box.run(_program("probe.py"), stdin=json.dumps(entries).encode())
    try:
        numbers: list[int] = json.loads(result.stdout)
    except ValueError:
        raise SandboxError(f"the program that tries files and connections {_ending(result)}") from None
    return {
        index: Seen("allow", "it worked") if number == 0 else Seen("deny", os.strerror(number))
        for index, number in zip(probes, numbers, strict=True)
    }


async def _try_demand(box: AsyncSandbox, demand: Demand) -> Seen:
    result = await box.run(_program("demand.py"), args=[demand.resource, str(demand.amount)])
    if result.ok:
        return Seen("allow", "it was given")
    if result.exit_code == REFUSED or result.status is Status.RESOURCE_EXCEEDED:
        return Seen("deny", result.detail or "the kernel refused it")
    return Seen(None, f"the program that asks for it {_ending(result)}")


async def _try_command(box: AsyncSandbox, command: Command) -> Seen:
    result = await box.run(command.line, language="bash")
    if result.status is Status.DENIED:
        return Seen("deny", result.detail)
    return Seen("allow", "the sandbox ran it")


def _program(name: str) -> bytes:
    return (_FOLDER / name).read_bytes()


def _ending(result: RunResult) -> str:
    words = result.detail or f"exited with code {result.exit_code}: {result.stderr.strip()[-200:]}"
    return f"did not come to its end: {words}"
