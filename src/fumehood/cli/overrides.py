"""The policy of one command: from the file, with what the command line says on top, in the command line's words."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from fumehood.cli.output import print_denials
from fumehood.errors import PolicyError, UsageError

if TYPE_CHECKING:  # a mistake in a command line is found without them
    from fumehood.policy import Policy
    from fumehood.results import Denial

_FLAGS = {
    "resources.timeout": "--timeout",
    "resources.memory": "--memory",
    "resources.cpus": "--cpus",
    "resources.disk": "--disk",
    "resources.processes": "--processes",
    "environment.packages": "--with",
    "network.allow": "--allow",
    "network.publish": "--publish",
    "backend": "--backend",
    "filesystem.mounts": "--mount",
}
_MODES = ("ro", "rw")
_WEB_PORTS = [80, 443]
_POLICY_HELP = "what is allowed; also a name of `hood policy list` (default: hood.yaml, else nothing)"
_ALLOW_HELP = "let it connect to this host, by default to ports 80 and 443 (repeatable)"
_WITH_HELP = "install this Python package for it, such as pandas or pandas==2.2.3 (repeatable)"
_PUBLISH_HELP = "print an address at which you reach this port of the program while it runs (repeatable)"
_MOUNT_KEY = re.compile(r"filesystem\.mounts\[(\d+)\]\.(\w+)(.*)", re.DOTALL)

_NEW_RULE = re.compile(
    r"add (a rule such as )?\{host: ([^ ,]+), ports: \[(\d+)\](?:, private: true)?\} to network\.allow"
)
_ANOTHER_PORT = re.compile(r"add \d+ to ports of network\.allow\[\d+\]")
_SETTING = re.compile(r"set (\w+: \w+) in network\.allow\[\d+\]")


class Arguments(argparse.Namespace):
    policy: str | None
    no_config: bool = False
    found: str | None = None
    """The project's policy, if --policy was not given; `policy` is the same then."""
    backend: str | None
    timeout: str | None
    memory: str | None
    cpus: float | None
    disk: str | None
    processes: int | None
    packages: list[str]
    hosts: list[str]
    publish: list[int]
    mount: list[str]
    env: list[str]


def add_options(parser: argparse.ArgumentParser, *, variables: bool = True) -> None:
    """Adds the options of every command that opens a sandbox; `variables` where one program is run in it."""
    parser.add_argument("--policy", metavar="FILE", help=_POLICY_HELP)
    parser.add_argument(
        "--no-config", action="store_true", help="do not look for hood.yaml here and in the folders above"
    )
    add_changes(parser, variables=variables)


def add_publish(parser: argparse.ArgumentParser) -> None:
    """For commands that run one program."""
    parser.add_argument("--publish", metavar="PORT", type=_port, action="append", default=[], help=_PUBLISH_HELP)


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise argparse.ArgumentTypeError(
            f"{text!r} must be a port of the program, such as 8000; yours is chosen for you"
        )
    return int(text)


def add_changes(
    parser: argparse.ArgumentParser, *, variables: bool = True, limits: str = "instead of the policy's"
) -> None:
    """Adds the options that change a policy."""
    add = parser.add_argument
    parser.set_defaults(publish=[])
    add("--backend", metavar="NAME", help=f"{limits}: auto, native, docker, gvisor or microvm")
    add("--timeout", metavar="TIME", help=f"{limits}: 500ms, 30s, 2m")
    add("--memory", metavar="SIZE", help=f"{limits}: 256M, 1G")
    add("--cpus", metavar="N", type=float, help=f"{limits}: 0.5, 2")
    add("--disk", metavar="SIZE", help=f"{limits}: 64M, 1G")
    add("--processes", metavar="N", type=int, help=f"{limits}: 16, 256")
    add("--allow", metavar="HOST[:PORT]", dest="hosts", action="append", default=[], help=_ALLOW_HELP)
    add("--with", metavar="PACKAGE", dest="packages", action="append", default=[], help=_WITH_HELP)
    add(
        "-v",
        "--mount",
        metavar="SRC:DST[:ro|rw]",
        action="append",
        default=[],
        help="show a file or folder (repeatable)",
    )
    if variables:
        add(
            "-e",
            "--env",
            metavar="K=V",
            action="append",
            default=[],
            help="set a variable; K alone takes yours (repeatable)",
        )


def _wanted(chosen: Arguments, policy: Policy) -> dict[str, object]:
    """The keys to change; what was not said stays as the policy has it, and lists grow."""
    limits = {key: getattr(chosen, key) for key in ("timeout", "memory", "cpus", "disk", "processes")}
    changes: dict[str, object] = {}
    if given := {key: value for key, value in limits.items() if value is not None}:
        changes["resources"] = given
    if chosen.mount:
        mounts = [mount.model_dump() for mount in policy.filesystem.mounts]
        changes["filesystem"] = {"mounts": [*mounts, *map(parse_mount, chosen.mount)]}
    if chosen.backend is not None:
        changes["backend"] = chosen.backend
    if network := _wanted_network(chosen, policy):
        changes["network"] = network
    if chosen.packages:
        changes["environment"] = {"packages": [*policy.environment.packages, *chosen.packages]}
    return changes


def _wanted_network(chosen: Arguments, policy: Policy) -> dict[str, object]:
    changes: dict[str, object] = {}
    if chosen.hosts:
        rules = [rule.model_dump() for rule in policy.network.allow]
        changes["allow"] = [*rules, *map(parse_host, chosen.hosts)]
    if chosen.publish:
        changes["publish"] = list(dict.fromkeys([*policy.network.publish, *chosen.publish]))
    return changes


def load_policy(chosen: Arguments, default: Policy | None = None) -> Policy:
    from fumehood.cli import policy_choice

    return change(policy_choice.choose(chosen, default), chosen)


def change(policy: Policy, chosen: Arguments) -> Policy:
    """The policy, with what the command line says on top."""
    changes = _wanted(chosen, policy)
    try:
        return policy.override(changes) if changes else policy
    except PolicyError as error:
        # The file was fine by itself, so whatever is wrong now was said on the command line.
        first = len(policy.filesystem.mounts)
        raise UsageError("\n".join(_in_flags(p, chosen.mount, first) for p in error.problems)) from None


def parse_host(text: str) -> dict[str, object]:
    """A rule for HOST, HOST:PORT or [IPV6]:PORT."""
    host, _, port = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    if not host or (":" in host and not host.startswith("[")):
        host, port = text, ""
    if port and not port.isdecimal():
        raise UsageError(f"--allow {text!r} must be HOST or HOST:PORT, such as api.example.com or db.example:5432")
    bare = host.removeprefix("[").removesuffix("]")
    # An address of the local network that is written out is meant; other names that lead there need a policy.
    return {"host": bare, "ports": [int(port)] if port else _WEB_PORTS, "private": _is_private(bare)}


def _is_private(host: str) -> bool:
    from ipaddress import ip_address

    from fumehood.policy.hosts import is_localhost

    if is_localhost(host):
        return True
    try:
        return not ip_address(host).is_global
    except ValueError:
        return False


def parse_mount(text: str) -> dict[str, str]:
    """A source may have colons in it; the target and the mode are the last parts."""
    rest, _, last = text.rpartition(":")
    places, mode = (rest, last) if last in _MODES else (text, "ro")
    source, _, target = places.rpartition(":")
    if not source:
        raise UsageError(f"--mount {text!r} must be SRC:DST or SRC:DST:ro or SRC:DST:rw, such as ./data:/data:ro")
    return {"source": source, "target": target, "mode": mode}


def environment(entries: list[str], own: Mapping[str, str]) -> dict[str, str]:
    """`K=V`, or `K` for the caller's own value; nothing else of the caller's environment gets in."""
    variables: dict[str, str] = {}
    for entry in entries:
        name, is_set, value = entry.partition("=")
        if not name:
            raise UsageError(f"--env {entry!r} has no name; write K=V, or K to pass on your own")
        if not is_set and name not in own:
            raise UsageError(f"--env {name}: there is no such variable in your environment; write {name}=VALUE")
        variables[name] = value if is_set else own[name]
    return variables


def name_flags(text: str) -> str:
    """A sentence with `--memory` for `resources.memory`, and with `--allow` for a rule."""
    for key, flag in _FLAGS.items():
        if key.startswith("resources."):
            text = text.replace(key, flag)
    from fumehood.sandbox.module_hint import ADVICE

    return _NEW_RULE.sub(_as_flag, ADVICE.sub(r"add --with \1, or --project DIR if it is a file of yours", text))


def tell_denials(chosen: Arguments, refused: tuple[Denial, ...]) -> None:
    """Prints denials with a remedy: a change of the policy's file, or without one an option."""
    if chosen.policy is None:
        print_denials(refused, remedy_in_flags)
    else:
        print_denials(refused)


def remedy_in_flags(denial: Denial) -> str:
    """What a command without --policy has to be given, so that it is refused no more."""
    from fumehood.policy.hosts import endpoint

    remedy, place = denial.remedy, endpoint(denial.host, denial.port)
    if _ANOTHER_PORT.fullmatch(remedy):
        return f"add --allow {place}"
    if setting := _SETTING.fullmatch(remedy):
        rule = f"{{host: {denial.host}, ports: [{denial.port}], {setting[1]}}}"
        return f"give --policy a file with {rule} in network.allow, instead of --allow"
    return _NEW_RULE.sub(_as_flag, remedy)


def _as_flag(match: re.Match[str]) -> str:
    from fumehood.policy.hosts import endpoint

    such_as = "HOST, such as --allow " if match[1] else ""
    bare = match[2].strip('"')
    return f"add --allow {such_as}{endpoint(bare, int(match[3]))}"


def _in_flags(problem: str, mounts: list[str], first: int) -> str:
    match = _MOUNT_KEY.fullmatch(problem)
    if match and int(match[1]) >= first:
        return f"--mount {mounts[int(match[1]) - first]}: {match[2]}{match[3]}"
    key, _, rest = problem.partition(": ")
    return f"{_FLAGS.get(key.partition('[')[0], key)}: {rest}"
