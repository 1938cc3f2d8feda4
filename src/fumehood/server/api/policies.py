"""The catalogue of a tenant over HTTP: versions of policies, their tests, their decisions, their differences."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from fumehood.policy.decision import Decision
from fumehood.policy.decisions import Judge, parse_attempt
from fumehood.server import events
from fumehood.server.api.models import (
    Name,
    PolicyAnswer,
    PolicyChanges,
    PolicyDecision,
    PolicyQuestion,
    PolicyTestReport,
    PolicyText,
)
from fumehood.server.api.problems import NotFoundError, PlainJson
from fumehood.server.api.routes import Caller, RunningServer, Server, scoped
from fumehood.server.identity.principals import Principal, Scope
from fumehood.server.tenants.catalogue import (
    CatalogueEntry,
    find_version,
    list_policies,
    put_policy,
    read_and_try,
    read_beside,
    read_tenant_policy,
)
from fumehood.server.tenants.policy_work import beside_the_loop

Version = Annotated[int | None, Query(ge=1, le=2**53)]
router = APIRouter(tags=["policies"])


@router.get("/policies", response_model=list[PolicyAnswer], **scoped(Scope.RUN))
async def list_catalogue(server: Server, caller: Caller) -> Response:
    """The newest version of each, without its text."""
    newest: dict[str, CatalogueEntry] = {}
    for entry in await list_policies(server.database, caller.tenant):
        newest.setdefault(entry.name, entry)
    return PlainJson([_described(entry) for entry in newest.values()])


@router.get("/policies/{name}", response_model=PolicyAnswer, **scoped(Scope.RUN))
async def show_policy(server: Server, caller: Caller, name: Name, version: Version = None) -> Response:
    entry = await _entry(server, caller, name, version)
    return PlainJson(_described(entry) | {"text": entry.text})


@router.get("/policies/{name}/versions", response_model=list[PolicyAnswer], **scoped(Scope.RUN))
async def list_versions(server: Server, caller: Caller, name: Name) -> Response:
    return PlainJson([_described(entry) for entry in await _versions(server, caller, name)])


@router.put("/policies/{name}", response_model=PolicyAnswer, **scoped(Scope.POLICIES))
async def change_policy(server: Server, caller: Caller, name: Name, given: PolicyText) -> Response:
    """A new version, if its own tests pass and it reaches for nothing of the server's."""

    async def record(entry: CatalogueEntry) -> None:
        event = events.CatalogueChanged(entry.name, entry.version, entry.digest)
        await server.chains.own(caller).write(event)

    entry = await put_policy(server.database, caller.tenant, name, given.text, caller.name, record)
    return PlainJson(_described(entry))


@router.post("/policies/{name}:test", response_model=PolicyTestReport, **scoped(Scope.RUN))
async def run_policy_tests(server: Server, caller: Caller, name: Name, given: PolicyText | None = None) -> Response:
    """The tests of a policy; with a text, of that text in its place."""
    entry = await _entry(server, caller, name, None)
    text = given.text if given else entry.text
    _, tried = await beside_the_loop(caller.tenant, lambda: read_and_try(text, name))
    results = [
        {"passed": result.passed, "expected": result.expectation.expect, **_decided(result.decision)}
        for result in tried
    ]
    return PlainJson({"passed": all(result["passed"] for result in results), "tests": results})


@router.post("/policies/{name}:explain", response_model=PolicyDecision, **scoped(Scope.RUN))
async def explain_policy(server: Server, caller: Caller, name: Name, given: PolicyQuestion) -> Response:
    """What a policy says to one attempt, such as `connect api.github.com:443`, and which rule decides."""
    entry, attempt = await _entry(server, caller, name, None), parse_attempt(given.attempt)

    def decide() -> Decision[str]:
        return Judge(read_tenant_policy(entry.text, name)).decide(attempt.kind, attempt.target)

    return PlainJson(_decided(await beside_the_loop(caller.tenant, decide)))


@router.get("/policies/{name}/diff", response_model=PolicyChanges, **scoped(Scope.RUN))
async def compare_versions(
    server: Server,
    caller: Caller,
    name: Name,
    since: Annotated[int, Query(alias="from", ge=1, le=2**53)],
    to: Version = None,
) -> Response:
    """What changes from one version to another, in words."""
    old, new = await _entry(server, caller, name, since), await _entry(server, caller, name, to)
    before, after = [await read_beside(caller.tenant, each.text, name) for each in (old, new)]
    changes = await beside_the_loop(caller.tenant, lambda: before.diff(after))
    return PlainJson({"changes": changes})


async def _versions(server: RunningServer, caller: Principal, name: str) -> list[CatalogueEntry]:
    found = await list_policies(server.database, caller.tenant, name)
    if not found:
        raise NotFoundError("policy")
    return found


async def _entry(server: RunningServer, caller: Principal, name: str, version: int | None) -> CatalogueEntry:
    found = await find_version(server.database, caller.tenant, name, version)
    if found is None:
        raise NotFoundError("policy" if version is None else "version of the policy")
    return found


def _described(entry: CatalogueEntry) -> dict[str, object]:
    return {
        "name": entry.name,
        "version": entry.version,
        "digest": entry.digest,
        "author": entry.author,
        "created_at": entry.created,
    }


def _decided(decision: Decision[str]) -> dict[str, object]:
    return {
        "attempt": decision.attempt,
        "allowed": decision.allowed,
        "reason": decision.reason,
        "rule": decision.rule or None,
        "fix": decision.fix,
    }
