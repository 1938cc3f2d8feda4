"""Policies: the catalogue of the tenant, versions and their differences in words, tests, questions, and changes.

A change is made in two steps: the page shows what it would mean, and saves exactly the text that it showed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import quote

from starlette.responses import Response

from fumehood.characters import neutralise
from fumehood.errors import DeniedError, FumehoodError, UsageError
from fumehood.frozen import frozen
from fumehood.policy import Policy, deny_all
from fumehood.policy.amendment import with_network_rule
from fumehood.policy.decision import Decision
from fumehood.policy.decisions import Judge, TestResult, parse_attempt
from fumehood.policy.lint import Finding, inspect
from fumehood.server import events
from fumehood.server.console.egress_rows import EgressRow, egress_rows
from fumehood.server.console.page_request import NoSuchPageError, PageRequest, StalePageError
from fumehood.server.console.pages.egress import is_shown
from fumehood.server.console.routes import ConsoleRoute, PageModule
from fumehood.server.console.tenant_pages import server_of
from fumehood.server.console.text_diff import DiffLine, text_diff
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
from fumehood.tenant import Tenant

_SEEN_BY = (Scope.RUN, Scope.POLICIES)
_CHANGED_BY = (Scope.POLICIES,)
_NEW_RULE = re.compile(r"add (\{host: .+\}) to network\.allow")
_NETWORK_RULE = re.compile(r"network\.allow\[(\d+)\]")
_MOST_DIGITS = 9
_MOST_ATTEMPTS = 20
_ATTEMPT_FIELD = "attempt-"


@frozen
class PolicyRisk:
    """What somebody should know of a text before it is a policy."""

    finding: Finding
    is_new: bool


@frozen
class Outlook:
    """What a text would mean as the next version."""

    changes: tuple[str, ...]
    lines: tuple[DiffLine, ...]
    tests: tuple[TestResult, ...]
    decisions: tuple[Decision[str], ...]
    """Of the attempts that it is about."""
    risks: tuple[PolicyRisk, ...]
    refusal: str
    """Why the server opens no sandbox of this tenant with it; empty if it does."""

    @property
    def is_good(self) -> bool:
        return bool(self.changes) and all(test.passed for test in self.tests)

    @property
    def has_new_danger(self) -> bool:
        return any(risk.is_new and risk.finding.level == "danger" for risk in self.risks)


@frozen
class Suggestion:
    """Something that was denied under a policy, and that its newest version would not allow either."""

    row: EgressRow
    change: str


async def show_all(page: PageRequest) -> Response:
    newest: dict[str, CatalogueEntry] = {}
    for entry in await list_policies(server_of(page).database, page.principal.tenant):
        newest.setdefault(entry.name, entry)
    in_use: dict[str, int] = {}
    for sandbox in await page.source.open_sandboxes():
        if not page.may(Scope.AUDIT, Scope.POLICIES) and not page.is_own(sandbox.opened_by):
            continue
        in_use[sandbox.policy] = in_use.get(sandbox.policy, 0) + 1
    return await page.page("policies.html", policies=list(newest.values()), in_use=in_use)


async def show(page: PageRequest) -> Response:
    name = page.path("name")
    entry = await _entry(page, name, _version(page.query("version")))
    versions = await list_policies(server_of(page).database, page.principal.tenant, name)
    since = _version(page.query("since")) or max(1, entry.version - 1)
    before = await _entry(page, name, since)
    attempt = page.query("attempt")
    outlook, problem = None, ""
    try:
        outlook = await _outlook(page, before, entry.text, [attempt] if attempt else [])
    except FumehoodError as error:
        problem = str(error)
    return await page.page(
        "policy.html",
        entry=entry,
        versions=versions,
        since=since,
        outlook=outlook,
        problem=problem,
        attempt=attempt,
        is_newest=entry.version == versions[0].version,
        may_change=page.may(*_CHANGED_BY),
        suggestions=await _suggestions(page, await _entry(page, name, None)) if page.may(*_CHANGED_BY) else [],
    )


async def _suggestions(page: PageRequest, newest: CatalogueEntry) -> list[Suggestion]:
    """What was denied lately, also while learning, and a rule of its own would allow."""
    log = page.source.log
    rows = await page.blocking(lambda: egress_rows(log, lambda record: is_shown(page, record), of_policy=newest.name))
    tried = [row for row in rows if not row.is_allowed and row.attempt][:_MOST_ATTEMPTS]

    def judge() -> list[Suggestion]:
        policy = read_tenant_policy(newest.text, newest.name)
        decided = ((row, _decide(policy, row.attempt)) for row in tried)
        return [Suggestion(row, decision.fix) for row, decision in decided if _NEW_RULE.fullmatch(decision.fix)]

    try:
        return await beside_the_loop(page.principal.tenant, judge)
    except FumehoodError:
        return []  # the text is not a policy any more; the page says so


async def propose(page: PageRequest) -> Response:
    """A form with the newest text; with the rules that attempts lack, where they can be added to it."""
    entry = await _entry(page, page.path("name"), None)
    attempts = page.request.query_params.getlist("attempt")[:_MOST_ATTEMPTS]
    text, remarks = await beside_the_loop(page.principal.tenant, lambda: _with_rules(entry, attempts))
    return await _shown_change(page, entry, text, attempts, remarks)


def _with_rules(entry: CatalogueEntry, attempts: Sequence[str]) -> tuple[str, list[str]]:
    text, remarks = entry.text, list[str]()
    for attempt in attempts:
        decision = _decide(read_tenant_policy(text, entry.name), attempt)
        if found := _NEW_RULE.fullmatch(decision.fix):
            text = with_network_rule(text, found[1])
        elif not decision.allowed:
            remarks.append(f"{attempt}: {decision.fix or 'there is no rule that would allow this.'}")
        elif text == entry.text:
            remarks.append(f"{attempt}: version {entry.version} allows this already, by {decision.rule}.")
    return text, remarks


async def preview(page: PageRequest) -> Response:
    entry = await _based_on(page)
    attempts = [value for name, value in page.form.items() if name.startswith(_ATTEMPT_FIELD)]
    return await _shown_change(page, entry, _text(page), attempts, [])


async def save(page: PageRequest) -> Response:
    """The text that was shown, as the next version. Its tests have to pass; a newer version makes the page stale."""
    server, caller, name = server_of(page), page.principal, page.path("name")
    based_on = await _based_on(page)
    if page.form.get("beware") != "yes" and (await _outlook(page, based_on, _text(page), [])).has_new_danger:
        raise UsageError("Say that you have read what is dangerous about it, in the box above the button.")

    async def record(entry: CatalogueEntry) -> None:
        await server.chains.own(caller).write(events.CatalogueChanged(entry.name, entry.version, entry.digest))

    try:
        entry = await put_policy(
            server.database, caller.tenant, name, _text(page), caller.name, record, based_on.version
        )
    except NewerVersionError as error:
        raise _stale(error.version) from None
    return page.go(f"/policies/{quote(name)}?version={entry.version}")


async def _shown_change(
    page: PageRequest, entry: CatalogueEntry, text: str, attempts: Sequence[str], remarks: Sequence[str]
) -> Response:
    outlook, problem = None, ""
    text = neutralise(text)  # what is judged is what the form shows, and sends back
    try:
        outlook = await _outlook(page, entry, text, attempts)
    except FumehoodError as error:
        problem = str(error)
    return await page.page(
        "policy_change.html",
        entry=entry,
        text=text,
        attempts={f"{_ATTEMPT_FIELD}{number}": attempt for number, attempt in enumerate(attempts)},
        remarks=remarks,
        outlook=outlook,
        problem=problem,
        is_changed=text != entry.text,
    )


async def _outlook(page: PageRequest, before: CatalogueEntry, text: str, attempts: Sequence[str]) -> Outlook:
    server, name = server_of(page), page.principal.tenant
    tenant = await server.tenancy.of(name, deny_all())

    def look() -> Outlook:
        old = read_tenant_policy(before.text, before.name)
        new, tests = read_and_try(text, before.name)
        known = [(each.message, _subject(old, each)) for each in inspect(old)]
        return Outlook(
            tuple(old.diff(new) if before.text != text else ()),
            tuple(text_diff(before.text, text)),
            tuple(tests),
            tuple(_decide(new, attempt) for attempt in attempts),
            tuple(PolicyRisk(each, (each.message, _subject(new, each)) not in known) for each in inspect(new)),
            _refusal(tenant, new),
        )

    return await beside_the_loop(name, look)


def _subject(policy: Policy, finding: Finding) -> object:
    """What it is about: a network rule, wherever it stands, or a whole section. A danger in one that differs is new."""
    if found := _NETWORK_RULE.fullmatch(finding.key):
        return policy.network.allow[int(found[1])]
    return getattr(policy, re.split(r"[.\[]", finding.key, maxsplit=1)[0])


def _refusal(tenant: Tenant, policy: Policy) -> str:
    try:
        tenant.check(policy)
    except DeniedError as error:
        return str(error)
    return ""


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
