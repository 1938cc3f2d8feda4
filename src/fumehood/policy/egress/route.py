"""One host and port that the rules open, and what they say of it together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property

from fumehood.policy.egress.headers import USUAL_METHODS, canonical_header, is_harmless_header
from fumehood.policy.hosts import is_address
from fumehood.policy.network import NetworkRule, Protocol
from fumehood.policy.paths import PathGlob
from fumehood.policy.secret import Secret

_STRICTEST_FIRST: tuple[Protocol, ...] = ("tls", "http", "tcp")


@dataclass(frozen=True)
class NumberedRule:
    """A rule and its place in the policy, so that people can find it."""

    rule: NetworkRule
    index: int

    @property
    def key(self) -> str:
        return f"network.allow[{self.index}]"

    @cached_property
    def _globs(self) -> tuple[PathGlob, ...]:
        return tuple(PathGlob(path) for path in self.rule.paths or ())

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that it allows where requests are read."""
        return self.rule.methods or USUAL_METHODS

    def covers_method(self, method: str) -> bool:
        return method in self.methods

    def covers_header(self, name: str) -> bool:
        """Whether the rule lists a header that is not known to be harmless; `name` is in its canonical spelling."""
        return any(fnmatchcase(name, pattern) for pattern in self.rule.headers or ())

    def covers_path(self, path: str) -> bool:
        return self.rule.paths is None or any(glob.accepts(path) for glob in self._globs)


@dataclass(frozen=True)
class Route:
    """The rules that decide about one host and port. Where they differ, the strictest of each matter holds."""

    host: str
    port: int
    rules: tuple[NumberedRule, ...]
    secrets: tuple[Secret, ...] = ()

    @property
    def key(self) -> str:
        """The first of its rules; the others have the same host."""
        return self.rules[0].key

    @cached_property
    def protocol(self) -> Protocol:
        spoken = {rule.rule.protocol_on(self.port) for rule in self.rules}
        return next(protocol for protocol in _STRICTEST_FIRST if protocol in spoken)

    @cached_property
    def private(self) -> bool:
        return all(rule.rule.private for rule in self.rules)

    @cached_property
    def narrowing(self) -> tuple[NumberedRule, ...]:
        """The rules that list methods or paths. Beside them, one that lists nothing opens nothing."""
        return tuple(rule for rule in self.rules if rule.rule.narrows_requests)

    @cached_property
    def reads_requests(self) -> bool:
        """Whether TLS has to end at the gateway."""
        return bool(self.narrowing or self.secrets)

    def unknown_headers(self, names: Iterable[str]) -> set[str]:
        """Headers that a rule has to list, in canonical spelling. Those that the gateway writes itself are replaced."""
        written = {canonical_header(secret.inject.header) for secret in self.secrets}
        found = {canonical_header(name) for name in names}
        return {name for name in found - written if not is_harmless_header(name)}

    @property
    def names_its_address(self) -> bool:
        """Whether a rule lists this very address, rather than a name or a block that leads to it."""
        return is_address(self.host) and any(rule.rule.host == self.host for rule in self.rules)
