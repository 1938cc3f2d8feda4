"""From what a program was refused to the smallest policy that would allow it, for somebody to review. Pure."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from ipaddress import ip_address

import yaml

from fumehood.policy.egress.addresses import Reach, classify
from fumehood.policy.hosts import check_host, endpoint, is_address
from fumehood.policy.model import Policy
from fumehood.policy.network import NetworkRule, Protocol
from fumehood.results import Denial

# Somebody is to read them all; more become the folder that they are in.
_MOST_PATHS = 10
_HEAD = "# What the program tried; nothing was let through. Read every line before you use it."
_GLOB_CHARACTERS = frozenset("*?[]")


@dataclass(slots=True)
class _Place:
    """One host and port, and all that was tried there."""

    host: str
    port: int
    protocol: Protocol | None = None
    methods: set[str] = field(default_factory=set[str])
    paths: set[str] = field(default_factory=set[str])
    websocket: bool = False


@dataclass(frozen=True, slots=True)
class Lesson:
    policy: Policy
    remarks: tuple[str, ...] = ()
    """What was tried and has no rule that would allow it, or none that can be told."""

    def to_yaml(self) -> str:
        """A policy file. What is as in every policy is left out."""
        content = {"version": 1, **self.policy.model_dump(mode="json", exclude_defaults=True)}
        text = yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=110)
        return "\n".join((_HEAD, *(f"# {remark}" for remark in self.remarks), text))


def learn(policy: Policy, denials: Iterable[Denial]) -> Lesson:
    """The policy with rules for what was tried, and with no others."""
    places: dict[tuple[str, int], _Place] = {}
    names: dict[str, None] = {}
    remarks: list[str] = []
    for denial in denials:
        try:
            host = check_host(denial.host)
        except ValueError as error:
            remarks.append(f"{denial.what}: the name {error}")
            continue
        if denial.port:
            _note(places.setdefault((host, denial.port), _Place(host, denial.port)), denial)
        else:
            names[host] = None
    reached = {host for host, _ in places}
    remarks += [f"{name} was looked up, and no connection to it was seen" for name in names if name not in reached]
    rules = list(_rules(places.values(), remarks))
    return Lesson(policy.override({"network": {"allow": rules}}), tuple(remarks))


def _note(place: _Place, denial: Denial) -> None:
    if denial.kind == "tls":
        place.protocol = "tls"
    elif denial.kind == "http":
        scheme = denial.what.partition(denial.host)[0]
        place.protocol = "tls" if "https://" in scheme or "wss://" in scheme else "http"
        place.websocket |= " ws" in scheme
        place.methods.add(denial.method)
        place.paths.add(denial.path)


def _rules(places: Iterable[_Place], remarks: list[str]) -> Iterator[dict[str, object]]:
    for place in places:
        is_private = False
        if is_address(place.host):
            reach, kind = classify(ip_address(place.host))
            if reach is Reach.NEVER:
                remarks.append(f"{endpoint(place.host, place.port)} is {kind}, and no rule allows that")
                continue
            is_private = reach is not Reach.PUBLIC
        yield _rule(place, is_private)


def _rule(place: _Place, is_private: bool) -> dict[str, object]:
    usual = NetworkRule(host=place.host, ports=(place.port,)).protocol_on(place.port)
    rule: dict[str, object] = {"host": place.host, "ports": [place.port]}
    if place.protocol not in (None, usual):
        rule["protocol"] = place.protocol
    if place.methods:
        rule["methods"] = sorted(place.methods)
        rule["paths"] = _patterns(place.paths)
    if place.websocket:
        rule["websocket"] = True
    if is_private:
        rule["private"] = True
    return rule


def _patterns(paths: set[str]) -> list[str]:
    """Exactly these; a folder with all that is in it when they are too many, or cannot be written as a pattern."""
    if len(paths) <= _MOST_PATHS and not any(_GLOB_CHARACTERS & set(path) for path in paths):
        return sorted(paths)
    folder = posixpath.commonpath([posixpath.dirname(path) for path in paths])
    return [f"{folder.rstrip('/')}/**"]
