"""What happened in a period, counted from the records: runs, denials, approvals, policies, proofs. Pure.

Records that are not as they were written are counted like others; whether they are is for `verification` to say, and
its answer stands in the same report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fumehood.audit.records import Record

# Kind of record -> the fields that say what was denied.
_DENIALS: Mapping[str, tuple[str, ...]] = {
    "egress.denied": ("what", "reason"),
    "request.denied": ("action", "reason"),
    "sandbox.refused": ("policy_name", "reason"),
    "tool.refused": ("tool", "reason"),
    "grant.denied": ("action", "target"),
    "port.denied": ("port", "reason"),
    "canary.seen": ("canary", "where"),
}
_ANSWERS = ("approval.given", "approval.edited", "approval.denied", "approval.reviewed", "approval.expired")
_CHANGES: Mapping[str, tuple[str, ...]] = {
    "policy.changed": ("policy_digest",),
    "sandbox.policy": ("name", "policy_digest"),
    "catalogue.changed": ("name", "number", "policy_digest"),
    "quota.set": ("owner", "quota", "value"),
    "key.created": ("owner", "key", "name"),
    "key.revoked": ("owner", "key"),
    "log.pruned": ("first", "records", "archive"),
    "proof.made": ("backend", "verdict", "policy"),
}


@dataclass(frozen=True, slots=True)
class Happening:
    """One record that a reader wants to see by itself."""

    time: str
    seq: int
    kind: str
    who: str
    what: str


@dataclass(slots=True)
class Period:
    records: int = 0
    first: int = 0
    last: int = 0
    runs: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    """By status and cause."""
    days: dict[str, Counter[str]] = field(default_factory=dict[str, Counter[str]])
    cpu_us: int = 0
    denials: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    """By kind of record and what was denied."""
    policies: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    """Sandboxes opened, by name and digest of the policy."""
    first_uses: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    """When the first of them opened: a name that comes with another digest is a policy that was changed."""
    asked: int = 0
    answers: list[Happening] = field(default_factory=list[Happening])
    changes: list[Happening] = field(default_factory=list[Happening])


def summarise(records: Iterable[Record]) -> Period:
    period = Period()
    for record in records:
        _add(period, record, record.data)
    return period


def _add(period: Period, record: Record, data: Mapping[str, Any]) -> None:
    period.records += 1
    period.first = period.first or record.seq
    period.last = record.seq
    day = period.days.setdefault(record.time[:10], Counter())
    match record.kind:
        case "run.finished":
            period.runs[str(data.get("status")), str(data.get("cause"))] += 1
            period.cpu_us += _number(data.get("cpu_us"))
            day["runs"] += 1
            day["not successful"] += data.get("status") != "success"
        case "run.broke":
            period.runs["broke", str(data.get("error"))] += 1
            day["runs"] += 1
            day["not successful"] += 1
        case "sandbox.opened":
            policy = str(data.get("policy_name") or ""), str(data.get("policy_digest"))
            period.policies[policy] += 1
            period.first_uses.setdefault(policy, record.time)
            day["sandboxes"] += 1
        case "approval.asked":
            period.asked += 1
            day["approvals asked"] += 1
        case kind if kind in _DENIALS:
            count = _number(data.get("count")) or 1
            period.denials[kind, _words(data, _DENIALS[kind])] += count
            day["denials"] += count
        case kind if kind in _ANSWERS:
            period.answers.append(_happening(record, _words(data, ("tool", "by", "reviewer", "verdict", "reason"))))
        case kind if kind in _CHANGES:
            named = (f"{name.replace('_', ' ')} {data[name]}" for name in _CHANGES[kind] if data.get(name) is not None)
            period.changes.append(_happening(record, ", ".join(named)))
        case _:
            pass


def _happening(record: Record, what: str) -> Happening:
    return Happening(record.time, record.seq, record.kind, str(record.parse().get("who") or ""), what)


def _words(data: Mapping[str, Any], names: Iterable[str]) -> str:
    return ", ".join(str(data[name]) for name in names if data.get(name) is not None)


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
