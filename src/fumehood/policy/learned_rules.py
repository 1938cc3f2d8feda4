"""Rules learned from a run: the smallest policy that would allow what was denied, for a person to review. Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from ipaddress import ip_address

import yaml

from fumehood.policy.egress.addresses import Reach, classify
from fumehood.policy.egress.targets import readings, split_target
from fumehood.policy.hosts import check_host, endpoint, is_address, is_localhost
from fumehood.policy.model import Policy
from fumehood.policy.network import NetworkRule, Protocol, is_method
from fumehood.results import Denial

# A person has to read them all; more become the folder that they are in.
_MOST_PATHS = 10
_HEAD = "# What the program tried; nothing was let through. Read every line before you use it."
# A longer one is not told in full.
_LONGEST_PATH = 200
_GLOB_CHARACTERS = re.compile(r"[*?\[]")


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
    reached: set[str] = set()
    for denial in denials:
        try:
            host = check_host(denial.host)
        except ValueError as error:
            remarks.append(f"{denial.what}: the name {error}")
            continue
        if not denial.port:
            names[host] = None
            continue
        reached.add(host)
        try:
            paths = _paths(denial) if denial.kind == "http" else set[str]()
        except ValueError as error:
            remarks.append(f"{denial.what}: {error}")
            continue
        _note(places.setdefault((host, denial.port), _Place(host, denial.port)), denial, paths)
    remarks += [f"{name} was looked up, and no connection to it was seen" for name in names if name not in reached]
    rules = list(_rules(places.values(), remarks))
    return Lesson(policy.override({"network": {"allow": rules}}), tuple(remarks))


def _paths(denial: Denial) -> set[str]:
    """All that a rule has to list for this request, or ValueError saying why none can."""
    if not is_method(denial.method):
        raise ValueError("no rule can list this method")
    if len(denial.path) > _LONGEST_PATH or "\\" in denial.path:
        raise ValueError("the path is too long or too strange to be listed")
    found = readings(split_target(denial.path))
    if not all(path.isprintable() for path in found):
        raise ValueError("the path has characters that are not printable")
    return found


def _note(place: _Place, denial: Denial, paths: set[str]) -> None:
    if denial.kind == "tls":
        place.protocol = "tls"
    elif denial.kind == "http":
        place.protocol = "tls" if denial.secure else "http"
        place.websocket |= denial.websocket
        place.methods.add(denial.method)
        place.paths |= paths


def _rules(places: Iterable[_Place], remarks: list[str]) -> Iterator[dict[str, object]]:
    for place in places:
        is_private = is_localhost(place.host)
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
    """Exactly these; a folder with all that is in it when they are too many."""
    if len(paths) <= _MOST_PATHS:
        return sorted(map(_pattern, paths))
    folder = posixpath.commonpath([posixpath.dirname(path) for path in paths])
    return [f"{_pattern(folder).rstrip('/')}/**"]


def _pattern(path: str) -> str:
    """What means this path alone."""
    return _GLOB_CHARACTERS.sub(r"[\g<0>]", path)
