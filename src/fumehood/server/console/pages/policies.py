"""Policies: the catalogue of the tenant, versions and their differences in words, tests, questions, and changes.

A change is made in two steps: the page shows what it would mean, and saves exactly the text that it showed.
"""

from __future__ import annotations

import re
from urllib.parse import quote

from starlette.responses import Response

from fumehood.characters import neutralise
from fumehood.errors import FumehoodError, UsageError
from fumehood.frozen import frozen
from fumehood.policy import Policy
from fumehood.policy.amendment import with_network_rule
from fumehood.policy.decision import Decision
from fumehood.policy.decisions import Judge, TestResult, parse_attempt
from fumehood.server import events
from fumehood.server.console.page_request import NoSuchPageError, PageRequest, StalePageError
from fumehood.server.console.routes import ConsoleRoute, PageModule
from fumehood.server.console.tenant_pages import server_of
from fumehood.server.identity.principals import Scope
from fumehood.server.tenants.catalogue import (
    CatalogueEntry,
    NewerVersionError,
    find_version,
    list_policies,
    put_policy,
    read_and_try,
    read_tenant_policy,
)
from fumehood.server.tenants.policy_work import beside_the_loop

_SEEN_BY = (Scope.RUN, Scope.POLICIES)
_CHANGED_BY = (Scope.POLICIES,)
_NEW_RULE = re.compile(r"add (\{host: .+\}) to network\.allow")
_MOST_DIGITS = 9


@frozen
class Outlook:
    """What a text would mean as the next version."""

    changes: tuple[str, ...]
    tests: tuple[TestResult, ...]
    decision: Decision[str] | None
    """Of the attempt that the change is about."""

    @property
    def is_good(self) -> bool:
        return bool(self.changes) and all(test.passed for test in self.tests)


async def show_all(page: PageRequest) -> Response:
    newest: dict[str, CatalogueEntry] = {}
    for entry in await list_policies(server_of(page).database, page.principal.tenant):
        newest.setdefault(entry.name, entry)
    in_use: dict[str, int] = {}
    for sandbox in await page.source.open_sandboxes():
        if not page.may(Scope.AUDIT, Scope.POLICIES) and not page.is_own(sandbox.opened_by):
            continue
        in_use[sandbox.policy] = in_use.get(sandbox.policy, 0) + 1
    return page.page("policies.html", policies=list(newest.values()), in_use=in_use)


async def show(page: PageRequest) -> Response:
    name = page.path("name")
    entry = await _entry(page, name, _version(page.query("version")))
    versions = await list_policies(server_of(page).database, page.principal.tenant, name)
    since = _version(page.query("since")) or max(1, entry.version - 1)
    before = await _entry(page, name, since)
    attempt = page.query("attempt")
    outlook, problem = None, ""
    try:
        outlook = await _outlook(page, before, entry.text, attempt)
    except FumehoodError as error:
        problem = str(error)
    return page.page(
        "policy.html",
        entry=entry,
        versions=versions,
        since=since,
        outlook=outlook,
        problem=problem,
        attempt=attempt,
        is_newest=entry.version == versions[0].version,
        may_change=page.may(*_CHANGED_BY),
    )


async def propose(page: PageRequest) -> Response:
    """A form with the newest text; with the rule that an attempt lacks, if one can be added to it."""
    name, attempt = page.path("name"), page.query("attempt")
    entry = await _entry(page, name, None)
    text, remark = entry.text, ""
    if attempt:
        tenant = page.principal.tenant
        decision = await beside_the_loop(tenant, lambda: _decide(read_tenant_policy(entry.text, name), attempt))
        if decision.allowed:
            remark = f"Version {entry.version} allows this already: {decision.rule}."
        elif found := _NEW_RULE.fullmatch(decision.fix):
            text = await beside_the_loop(tenant, lambda: with_network_rule(entry.text, found[1]))
        else:
            remark = decision.fix or "There is no rule that would allow this."
    return await _shown_change(page, entry, text, attempt, remark)


async def preview(page: PageRequest) -> Response:
    entry = await _based_on(page)
    return await _shown_change(page, entry, _text(page), page.form.get("attempt", ""), "")


async def save(page: PageRequest) -> Response:
    """The text that was shown, as the next version. Its tests have to pass; a newer version makes the page stale."""
    server, caller, name = server_of(page), page.principal, page.path("name")
    based_on = await _based_on(page)

    async def record(entry: CatalogueEntry) -> None:
        await server.chains.own(caller).write(events.CatalogueChanged(entry.name, entry.version, entry.digest))

    try:
        entry = await put_policy(
            server.database, caller.tenant, name, _text(page), caller.name, record, based_on.version
        )
    except NewerVersionError as error:
        raise _stale(error.version) from None
    return page.go(f"/policies/{quote(name)}?version={entry.version}")


async def _shown_change(page: PageRequest, entry: CatalogueEntry, text: str, attempt: str, remark: str) -> Response:
    outlook, problem = None, ""
    text = neutralise(text)  # what is judged is what the form shows, and sends back
    try:
        outlook = await _outlook(page, entry, text, attempt)
    except FumehoodError as error:
        problem = str(error)
    return page.page(
        "policy_change.html",
        entry=entry,
        text=text,
        attempt=attempt,
        remark=remark,
        outlook=outlook,
        problem=problem,
        is_changed=text != entry.text,
    )


async def _outlook(page: PageRequest, before: CatalogueEntry, text: str, attempt: str) -> Outlook:
    def look() -> Outlook:
        old = read_tenant_policy(before.text, before.name)
        new, tests = read_and_try(text, before.name)
        changes = old.diff(new) if before.text != text else []
        return Outlook(tuple(changes), tuple(tests), _decide(new, attempt) if attempt else None)

    return await beside_the_loop(page.principal.tenant, look)


def _decide(policy: Policy, attempt: str) -> Decision[str]:
    asked = parse_attempt(attempt)
    return Judge(policy).decide(asked.kind, asked.target)


async def _based_on(page: PageRequest) -> CatalogueEntry:
    """The newest version, which must be the one that the form was made from."""
    entry = await _entry(page, page.path("name"), None)
    if page.form.get("version") != str(entry.version):
        raise _stale(entry.version)
    return entry


def _stale(version: int) -> StalePageError:
    return StalePageError(f"Version {version} was saved since this page was made. Load it again.")


def _text(page: PageRequest) -> str:
    """Browsers send the lines of a form with two characters between them."""
    return page.form.get("text", "").replace("\r\n", "\n")


async def _entry(page: PageRequest, name: str, version: int | None) -> CatalogueEntry:
    found = await find_version(server_of(page).database, page.principal.tenant, name, version)
    if found is None:
        raise NoSuchPageError
    return found


def _version(text: str) -> int | None:
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > _MOST_DIGITS:
        raise UsageError("a version is a number")
    return int(text)


MODULE = PageModule(
    (
        ConsoleRoute("/policies", show_all, _SEEN_BY, nav="Policies", key="p"),
        ConsoleRoute("/policies/{name}", show, _SEEN_BY),
        ConsoleRoute("/policies/{name}/change", propose, _CHANGED_BY),
        ConsoleRoute("/policies/{name}/change", preview, _CHANGED_BY, "POST"),
        ConsoleRoute("/policies/{name}/save", save, _CHANGED_BY, "POST"),
    ),
    {},
)
