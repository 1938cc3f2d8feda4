"""Whether a proof report is genuine and complete, and about this policy, kernel and version."""

from __future__ import annotations

import time
from collections.abc import Iterator

from fumehood.policy import Policy
from fumehood.proof.host_facts import ProofHost
from fumehood.proof.report import ProofReport
from fumehood.proof.trial import ALWAYS
from fumehood.proof.trials import TRIALS, trials_of


def objections(
    report: ProofReport,
    public: bytes,
    *,
    host: ProofHost | None = None,
    policy: Policy | None = None,
    since: str | None = None,
) -> Iterator[str]:
    """Why the report proves nothing here. `host` None: it is not compared with the machine it is read on.

    `since`: a time as reports have it. Whoever keeps an old report can show it again, with whatever held then.
    """
    if not report.is_signed_by(public):
        yield "it is not signed with this key, or was changed afterwards"
        return
    yield from _missing(report)
    yield from report.gaps()
    for one in report.with_result("broken"):
        yield f"{one.control}: {one.what} {one.seen}"
    if policy is not None and report.policy_digest not in _digests(policy, report):
        yield f"it is about another policy: {report.policy_digest}, and this one is {policy.digest}"
    if since is not None and not since[:_SECONDS] <= report.made_at[:_SECONDS] <= _now():
        yield f"it was made at {report.made_at}, which is not between {since[:_SECONDS]}Z and now"
    if host is not None:
        yield from _differences(report.host, host)


_SECONDS = len("2026-01-31T09:30:00")


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())


def _digests(policy: Policy, report: ProofReport) -> set[str]:
    """Of a policy that leaves the backend open, also with the one that was chosen for the proof by `--backend`."""
    chosen = policy.override({"backend": report.host.backend}) if policy.backend == "auto" else policy
    return {policy.digest, chosen.digest}


def _missing(report: ProofReport) -> Iterator[str]:
    """A report of another version may have fewer trials than this one asks for."""
    controls = [entry.control for entry in report.controls]
    for control in ALWAYS:
        if control not in controls:
            yield f"{control} is not among its controls"
    known = {trial.control for trial in TRIALS}
    for control in controls:
        if control not in known:
            yield f"{control}: this version knows no trial of it"
    observed = {one.name for one in report.observations}
    for trial in trials_of(controls):
        if trial.name not in observed:
            yield f"{trial.control}: {trial.what} It was not tried"


_COMPARED = {"version": "version of Fumehood", "kernel": "kernel", "machine": "kind of machine", "user": "kind of user"}


def _differences(then: ProofHost, now: ProofHost) -> Iterator[str]:
    """An ordinary user's limits are others than root's."""
    for name, what in _COMPARED.items():
        before, after = getattr(then, name), getattr(now, name)
        if before != after:
            yield f"it is about another {what}: {before}, and this is {after}"
