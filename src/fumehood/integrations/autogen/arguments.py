"""The options that describe a container, as one table: a key of the policy and a parser, or the reason for refusing.

An option that is not in the table is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

from fumehood.integrations.autogen import values
from fumehood.integrations.autogen.options import OptionError
from fumehood.integrations.autogen.values import Volume

_DEFAULT_CPU_PERIOD = 100_000
"""Docker's, in microseconds."""
_UNPRIVILEGED = ("sandbox", "nobody")
_ULIMITS = {"nofile": "open_files", "nproc": "processes", "cpu": "cpu_time"}


@dataclass(frozen=True)
class RequestedLimit:
    """`option` is where it was asked for."""

    value: float
    option: str


@dataclass
class Requested:
    """All that the options of an executor ask for, before a policy is looked at. Contradictions are refused."""

    limits: dict[str, RequestedLimit] = field(default_factory=dict[str, RequestedLimit])
    """The limits by their key in `resources`."""
    volumes: list[Volume] = field(default_factory=list[Volume])
    environment: dict[str, str] = field(default_factory=dict[str, str])
    network: RequestedLimit | None = None
    """1 for an open one, 0 for none."""

    def limit(self, key: str, value: float, option: str) -> None:
        self.limits[key] = _agreed(self.limits.get(key), RequestedLimit(value, option))

    def open_network(self, is_open: bool, option: str) -> None:
        self.network = _agreed(self.network, RequestedLimit(is_open, option))

    def combine_limits(self) -> None:
        """Replace limits that Docker spreads over several options by those of a policy."""
        swap, memory = self.limits.pop("memory_and_swap", None), self.limits.get("memory")
        if swap and (memory is None or memory.value != swap.value):
            raise OptionError(swap.option, "memory is limited together with swap, so this must be equal to mem_limit")
        period, quota = self.limits.pop("cpu_period", None), self.limits.pop("cpu_quota", None)
        if quota:
            self.limit("cpus", quota.value / (period.value if period else _DEFAULT_CPU_PERIOD), quota.option)
        elif period:
            raise OptionError(period.option, "has no effect without cpu_quota; give both, or cpus")


def _agreed(before: RequestedLimit | None, now: RequestedLimit) -> RequestedLimit:
    if before is not None and before.value != now.value:
        raise OptionError(now.option, f"contradicts {before.option}; give one of them")
    return now


def read_arguments(container: Mapping[str, object]) -> Requested:
    requested = Requested()
    _read_all(requested, container, "")
    requested.combine_limits()
    return requested


def _read_all(requested: Requested, container: Mapping[str, object], prefix: str) -> None:
    for name, value in container.items():
        option = f"{prefix}{name}"
        read = _OPTIONS.get(name.removeprefix("--").replace("-", "_"))
        if read is None:
            near = get_close_matches(name, [*_OPTIONS], n=1)
            raise OptionError(option, f"is not an option that can be enforced{f'; try {near[0]}' if near else ''}")
        if value is not None:
            read(requested, option, value)


Reader = Callable[[Requested, str, object], None]


def _limit(key: str, parse: Callable[[str, object], float]) -> Reader:
    """A key of `resources`, or a part of one that `combine_limits` knows."""

    def read(requested: Requested, option: str, value: object) -> None:
        requested.limit(key, parse(option, value), option)

    return read


def _always(expected: bool, reason: str) -> Reader:
    """A property that every sandbox has; asking for the opposite is refused."""

    def check(requested: Requested, option: str, value: object) -> None:
        if values.flag(option, value) is not expected:
            raise OptionError(option, reason)

    return check


def _refused(reason: str) -> Reader:
    """Something that no sandbox gets; an empty value asks for nothing."""

    def check(requested: Requested, option: str, value: object) -> None:
        if value not in (False, "", [], {}):
            raise OptionError(option, reason)

    return check


def _network_disabled(requested: Requested, option: str, value: object) -> None:
    requested.open_network(not values.flag(option, value), option)


def _network(requested: Requested, option: str, value: object) -> None:
    if value != "none":
        raise OptionError(option, f"{value!r} is a network of Docker; use 'none', or rules in a policy")
    requested.open_network(False, option)


def _ulimits(requested: Requested, option: str, value: object) -> None:
    for name, limit in values.ulimits(option, value):
        if name == "core" and limit == 0:
            continue  # no run has core dumps
        if name not in _ULIMITS:
            raise OptionError(f"{option}.{name}", f"cannot be limited; those that can: {', '.join(_ULIMITS)}")
        requested.limit(_ULIMITS[name], values.positive(f"{option}.{name}", limit), f"{option}.{name}")


def _cap_drop(requested: Requested, option: str, value: object) -> None:
    values.words(option, value)  # every run drops all capabilities


def _security_opt(requested: Requested, option: str, value: object) -> None:
    for word in values.words(option, value):
        if word.replace("=", ":") not in ("no-new-privileges", "no-new-privileges:true"):
            reason = f"{word!r} is not supported: the sandbox has its own seccomp filter and Landlock rules"
            raise OptionError(option, f"{reason}; no-new-privileges is always on")


def _tmpfs(requested: Requested, option: str, value: object) -> None:
    for folder, size in values.tmpfs(option, value):
        if folder not in ("/tmp", "/tmp/"):
            raise OptionError(option, f"{folder!r} is not supported; /tmp and the workspace can be written")
        if size is not None:
            requested.limit("disk", values.size(option, size), option)


def _volumes(requested: Requested, option: str, value: object) -> None:
    requested.volumes += values.volumes(option, value)


def _user(requested: Requested, option: str, value: object) -> None:
    name = str(value).partition(":")[0]
    if name in ("root", "0", ""):
        raise OptionError(option, f"{value!r} is refused: nothing in a sandbox is root")
    if value not in _UNPRIVILEGED:
        known = " or ".join(repr(name) for name in _UNPRIVILEGED)
        raise OptionError(option, f"{value!r}: a sandbox has one unprivileged user of its own; use {known}, or nothing")


def _environment(requested: Requested, option: str, value: object) -> None:
    requested.environment.update(values.variables(option, value))


def _private(requested: Requested, option: str, value: object) -> None:
    if value not in ("private", "none"):
        raise OptionError(option, f"{value!r} would share it with other processes; each run has its own")


def _extra(requested: Requested, option: str, value: object) -> None:
    _read_all(requested, values.named(option, value), f"{option}.")


_REMOVED = _always(True, "a sandbox is always removed when it stops; with work_dir its files stay")
_DEVICES = _refused("a sandbox has no devices")
_NO_NETWORK = _refused("a sandbox is in no network of Docker; write rules into a policy")

_OPTIONS: dict[str, Reader] = {
    "auto_remove": _REMOVED,
    "remove": _REMOVED,
    "rm": _REMOVED,
    "stop_container": _always(True, "a sandbox never outlives its executor"),
    "init": _always(True, "process 1 of a run always reaps orphaned processes"),
    "read_only": _always(True, "the root file system is always read-only; the workspace and /tmp can be written"),
    "privileged": _always(False, "nothing in a sandbox has privileges"),
    "network_disabled": _network_disabled,
    "network": _network,
    "network_mode": _network,
    "net": _network,
    "extra_hosts": _NO_NETWORK,
    "add_host": _NO_NETWORK,
    "dns": _NO_NETWORK,
    "ports": _NO_NETWORK,
    "publish": _NO_NETWORK,
    "device_requests": _DEVICES,
    "devices": _DEVICES,
    "device": _DEVICES,
    "gpus": _DEVICES,
    "cap_add": _refused("a sandbox has no capabilities"),
    "group_add": _refused("a sandbox has one group of its own"),
    "cap_drop": _cap_drop,
    "security_opt": _security_opt,
    "user": _user,
    "ipc": _private,
    "ipc_mode": _private,
    "mem_limit": _limit("memory", values.size),
    "memory": _limit("memory", values.size),
    "memswap_limit": _limit("memory_and_swap", values.size),
    "memory_swap": _limit("memory_and_swap", values.size),
    "cpus": _limit("cpus", values.positive_number),
    "nano_cpus": _limit("cpus", values.nano_cpus),
    "cpu_period": _limit("cpu_period", values.positive),
    "cpu_quota": _limit("cpu_quota", values.positive),
    "pids_limit": _limit("processes", values.positive),
    "ulimits": _ulimits,
    "ulimit": _ulimits,
    "tmpfs": _tmpfs,
    "volumes": _volumes,
    "volume": _volumes,
    "extra_volumes": _volumes,
    "environment": _environment,
    "env": _environment,
    "extra_docker_args": _extra,
}
