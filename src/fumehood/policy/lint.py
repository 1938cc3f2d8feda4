"""Choices that a policy may make but that its author should have meant.

Finds, never forbids. Paths are taken as they are written; all that is asked of the host is where the user's home is,
and whether there are sockets in a mount.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Literal

from fumehood.frozen import frozen
from fumehood.policy.approvals import TOOLS
from fumehood.policy.hazards import path_hazards
from fumehood.policy.hosts import covers, is_address
from fumehood.policy.network import NetworkRule
from fumehood.policy.quantities import GIB, MIB
from fumehood.policy.secret import Secret
from fumehood.policy.section import leaves
from fumehood.policy.sockets import REMEDY, find_socket
from fumehood.policy.words import words

if TYPE_CHECKING:
    from fumehood.policy.model import Policy

_HUGE: dict[str, float] = {
    "resources.timeout": 3600,
    "resources.cpu_time": 3600,
    "resources.memory": 16 * GIB,
    "resources.cpus": 64,
    "resources.processes": 4096,
    "resources.disk": 16 * GIB,
    "resources.inodes": 4_194_304,
    "resources.output": 64 * MIB,
    "resources.open_files": 65536,
    "resources.artifacts": 10_000,
    "resources.artifacts_size": 16 * GIB,
    "filesystem.workspace.size": 16 * GIB,
}
_BUILDERS = frozenset(
    {
        *("make", "gmake", "cmake", "ninja", "meson", "bazel", "scons", "gcc", "g++", "cc", "c++", "clang", "clang++"),
        *("cargo", "rustc", "go", "npm", "npx", "yarn", "pnpm", "pip", "pip3", "uv", "poetry", "tox", "nox", "gradle"),
        *("mvn", "dotnet"),
    }
)
# Examples, for what a pattern of headers may not have been meant to cover.
_TURNS_A_REQUEST = (
    *("destination", "x-http-method-override", "x-method-override", "x-original-url", "x-rewrite-url", "x-host"),
    *("forwarded", "x-forwarded-host", "x-script-name", "x-amz-copy-source", "x-goog-copy-source", "x-ms-copy-source"),
)
_METADATA_NAMES = frozenset({"metadata.google.internal", "metadata", "instance-data"})
_WIDEST_BLOCK = {4: 8, 6: 16}
"""By IP version, how many bits a block of public addresses has to name before it means somebody's."""


@frozen
class Finding:
    """One doubtful choice. `danger` can cost the host or its credentials; `warning` deserves a second look."""

    level: Literal["warning", "danger"]
    key: str
    message: str

    def __str__(self) -> str:
        return f"{self.level}: {self.key}: {self.message}"


def inspect(policy: Policy) -> list[Finding]:
    """Every doubtful choice, in the order of the file format."""
    return [finding for check in (*_CHOICES, _limits) for finding in check(policy)]


def dangers(policy: Policy) -> list[Finding]:
    """Findings that endanger the host or its credentials. Limits, which never do and take longest, are left out."""
    return [finding for check in _CHOICES for finding in check(policy) if finding.level == "danger"]


def _mounts(policy: Policy) -> Iterator[Finding]:
    home = os.path.normpath(os.path.expanduser("~")) if policy.filesystem.mounts else ""
    for mount in policy.filesystem.mounts:
        key = f"filesystem.mounts[{mount.target}]"
        if hazards := list(dict.fromkeys(path_hazards(mount.source, home))):
            message = f"{mount.source} exposes {' and '.join(hazards)}; mount only the folder that is needed"
            yield Finding("danger", key, message)
        elif not mount.sockets and (socket := find_socket(mount.source).socket):
            message = f"no sandbox opens with the unix socket {socket}, which programs could connect to; {REMEDY}"
            yield Finding("danger", key, message)
        if mount.sockets:
            message = f"sockets: true lets programs talk to whatever listens in {mount.source}, with its rights"
            yield Finding("danger", key, message)
        if mount.mode == "rw":
            message = (
                f"{mount.target} can be written, so a run can change {mount.source} on the host; prefer ro and outputs"
            )
            yield Finding("warning", key, message)


def _approvals(policy: Policy) -> Iterator[Finding]:
    if not policy.approvals:
        return
    from difflib import get_close_matches  # few policies need it

    for index, approval in enumerate(policy.approvals):
        near = get_close_matches(approval.tool, TOOLS, n=1)
        if near and approval.tool not in TOOLS:
            message = f"it is asked about {approval.tool!r}, and not about {near[0]}; did you mean {near[0]}?"
            yield Finding("danger", f"approvals[{index}].tool", message)


def _network(policy: Policy) -> Iterator[Finding]:
    for index, rule in enumerate(policy.network.allow):
        yield from _rule(f"network.allow[{index}]", rule)


def _rule(key: str, rule: NetworkRule) -> Iterator[Finding]:
    if rule.host in ("*", "0.0.0.0/0", "::/0"):
        yield Finding(
            "danger",
            key,
            f"{rule.host} opens every host, so anything that is read can be sent anywhere; name the hosts",
        )
    elif _is_wide(rule.host):
        message = (
            f"{rule.host} opens so many hosts that anything that is read can be sent to a stranger; name the hosts"
        )
        yield Finding("danger", key, message)
    elif rule.host.startswith("*.") and "." not in rule.host[2:]:
        yield Finding("danger", key, f"{rule.host} covers names that an attacker can register; name the hosts")
    if rule.private:
        gives_credentials = _gives_credentials(rule.host)
        message = "private: true reaches hosts behind the firewall" + (", here cloud credentials" * gives_credentials)
        yield Finding("danger" if "*" in rule.host or gives_credentials else "warning", key, message)
    elif _is_private(rule.host):
        yield Finding("warning", key, f"{rule.host} is not public, so nothing gets there without private: true")
    if rule.websocket and rule.narrows_requests:
        message = "what is said on a WebSocket is not read; methods and paths hold for the request that opens it"
        yield Finding("warning", key, message)
    if taken := [name for name in _TURNS_A_REQUEST if any(fnmatchcase(name, each) for each in rule.headers or ())]:
        message = f"headers has {taken[0]}, by which a server may take a request for one that no rule has seen"
        yield Finding("warning", key, message)
    if any(rule.protocol_on(port) == "http" for port in rule.ports):
        yield Finding("warning", key, "plain http can be read and changed on the way; use tls")


def _gives_credentials(host: str) -> bool:
    from fumehood.policy.egress.addresses import Reach, classify

    if "/" in host:
        return False  # only a rule for the very address opens one of those
    return host in _METADATA_NAMES or (is_address(host) and classify(ip_address(host))[0] is Reach.METADATA)


def _is_wide(host: str) -> bool:
    if "/" not in host:
        return False
    block = ip_network(host)
    return block.prefixlen < _WIDEST_BLOCK[block.version] and not _is_private(host)


def _is_private(host: str) -> bool:
    from fumehood.policy.egress.addresses import Reach, classify

    if "/" in host:
        block = ip_network(host)
        first, last = classify(block.network_address), classify(block.broadcast_address)
        return first == last and first[0] is not Reach.PUBLIC
    return is_address(host) and classify(ip_address(host))[0] is not Reach.PUBLIC


def _limits(policy: Policy) -> Iterator[Finding]:
    for leaf in leaves(policy):
        bound, value = _HUGE.get(leaf.key), leaf.value
        if bound is not None and isinstance(value, int | float) and value > bound:
            message = f"{words(value, leaf)} is more than {words(bound, leaf)}; a runaway program may use all of it"
            yield Finding("warning", leaf.key, message)


def _packages(policy: Policy) -> Iterator[Finding]:
    environment = policy.environment
    if environment.allow_sdists:
        yield Finding(
            "danger", "environment.allow_sdists", "building an sdist runs the package's own code; prefer wheels"
        )
    if environment.index is not None and not environment.index.startswith("https://"):
        yield Finding("danger", "environment.index", "packages over plain http can be replaced on the way; use https")
    if environment.index is not None and "@" in environment.index.split("/")[2]:
        yield Finding(
            "danger", "environment.index", "holds a credential, which ends up in logs; keep it out of the policy"
        )


def _secrets(policy: Policy) -> Iterator[Finding]:
    for secret in policy.secrets:
        yield from _secret(f"secrets[{secret.name}]", secret, policy.network.allow)


def _secret(key: str, secret: Secret, rules: tuple[NetworkRule, ...]) -> Iterator[Finding]:
    host = secret.inject.host
    matching = [rule for rule in rules if covers(rule.host, host) and _speaks_tls(rule)]
    if not matching:
        message = f"{secret.name} is never used: no rule in network.allow opens {host} with protocol tls"
        yield Finding("warning", key, message)
    if any(not rule.narrows_requests for rule in matching):
        message = f"{secret.name} goes with every request to {host}; give its rule in network.allow methods and paths"
        yield Finding("warning", key, message)


def _speaks_tls(rule: NetworkRule) -> bool:
    return any(rule.protocol_on(port) == "tls" for port in rule.ports)


def _commands(policy: Policy) -> Iterator[Finding]:
    commands = policy.commands
    if commands.is_open:
        return
    from fumehood.policy.commands.programs import INTERPRETERS, SHELLS
    from fumehood.policy.commands.rules import parse_rule

    if commands.allow is None:
        message = "a list of denied commands lets every other command run; list allowed commands in commands.allow"
        yield Finding("warning", "commands.deny", message)
    rules = tuple(map(parse_rule, commands.allow or ()))
    builders = sorted({rule.program for rule in rules if rule.program.rpartition("/")[2] in _BUILDERS})
    if builders and commands.enforce != "parse":
        message = (
            f"the kernel lets nothing run or be loaded that {', '.join(builders)} made; to build, say enforce: parse"
        )
        yield Finding("warning", "commands.enforce", message)
    for rule in rules:
        name = rule.program.rpartition("/")[2]
        if name in INTERPRETERS and len(rule.words) == 1:
            message = (
                f"{rule.program} runs any code, so other rules hold only for what the shell starts; name its arguments"
            )
            yield Finding("warning", f"commands.allow[{rule.text}]", message)
        elif name in SHELLS and rule.words[1:] == ("*",):
            message = f"{rule.text} runs files that the rules do not check; name the script"
            yield Finding("warning", f"commands.allow[{rule.text}]", message)


def _engine(policy: Policy) -> Iterator[Finding]:
    docker = policy.docker
    if docker.host is not None and docker.host.startswith("tcp://") and docker.tls_cert is None:
        yield Finding(
            "danger", "docker.host", "an engine on plain tcp obeys any host on the network; use ssh:// or tls_cert"
        )


_CHOICES: tuple[Callable[[Policy], Iterator[Finding]], ...] = (
    _mounts,
    _network,
    _packages,
    _secrets,
    _commands,
    _engine,
    _approvals,
)
