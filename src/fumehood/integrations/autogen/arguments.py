"""The options of containers: what each wishes for, or why it is refused. One that does not stand here is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import partial

from fumehood.integrations.autogen import values
from fumehood.integrations.autogen.refusals import OptionError
from fumehood.integrations.autogen.volumes import read_volumes
from fumehood.integrations.autogen.wishes import Limit, Wishes
from fumehood.policy import parse_size

Handler = Callable[[Wishes, str, object], None]

_UNPRIVILEGED = ("sandbox", "nobody")
_ULIMITS = {"nofile": "open_files", "nproc": "processes", "cpu": "cpu_time"}


def read_arguments(container: Mapping[str, object]) -> Wishes:
    wishes = Wishes()
    _read(wishes, container, "")
    wishes.conclude()
    return wishes


def _read(wishes: Wishes, container: Mapping[str, object], prefix: str) -> None:
    for name, value in container.items():
        option = f"{prefix}{name}"
        handler = _HANDLERS.get(name.removeprefix("--").replace("-", "_"))
        if handler is None:
            near = get_close_matches(name, [*_HANDLERS], n=1)
            raise OptionError(option, f"is not an option that can be enforced{f'; try {near[0]}' if near else ''}")
        if value is not None:
            handler(wishes, option, value)


def _extra(wishes: Wishes, option: str, value: object) -> None:
    _read(wishes, values.named(option, value), f"{option}.")


def _only(expected: bool, reason: str) -> Handler:
    """For what is always so, whoever asks."""

    def check(wishes: Wishes, option: str, value: object) -> None:
        if values.flag(option, value) is not expected:
            raise OptionError(option, reason)

    return check


def _nothing(reason: str) -> Handler:
    """For what a sandbox never gets."""

    def check(wishes: Wishes, option: str, value: object) -> None:
        if value not in (False, "", [], {}):
            raise OptionError(option, reason)

    return check


def _network_disabled(wishes: Wishes, option: str, value: object) -> None:
    wishes.open_network(not values.flag(option, value), option)


def _network(wishes: Wishes, option: str, value: object) -> None:
    if value != "none":
        raise OptionError(option, f"{value!r} is a network of Docker's; only 'none' can be had, or rules in a policy")
    wishes.open_network(False, option)


def _size(key: str, wishes: Wishes, option: str, value: object) -> None:
    wishes.limit(key, values.checked(option, parse_size, value), option)


def _memory_and_swap(wishes: Wishes, option: str, value: object) -> None:
    wishes.memory_and_swap = Limit(values.checked(option, parse_size, value), option)


def _count(key: str, wishes: Wishes, option: str, value: object) -> None:
    wishes.limit(key, values.positive(option, value), option)


def _cpus(wishes: Wishes, option: str, value: object) -> None:
    wishes.limit("cpus", values.positive_number(option, value), option)


def _nano_cpus(wishes: Wishes, option: str, value: object) -> None:
    wishes.limit("cpus", values.positive(option, value) / 10**9, option)


def _cpu_period(wishes: Wishes, option: str, value: object) -> None:
    wishes.cpu_period = Limit(values.positive(option, value), option)


def _cpu_quota(wishes: Wishes, option: str, value: object) -> None:
    wishes.cpu_quota = Limit(values.positive(option, value), option)


def _ulimits(wishes: Wishes, option: str, value: object) -> None:
    for name, limit in values.ulimits(option, value):
        if name == "core" and limit == 0:
            continue  # nobody has core dumps
        if name not in _ULIMITS:
            raise OptionError(f"{option}.{name}", f"cannot be limited; those that can: {', '.join(_ULIMITS)}")
        wishes.limit(_ULIMITS[name], values.positive(f"{option}.{name}", limit), f"{option}.{name}")


def _cap_drop(wishes: Wishes, option: str, value: object) -> None:
    values.words(option, value)  # all are dropped, so these are


def _security_opt(wishes: Wishes, option: str, value: object) -> None:
    for word in values.words(option, value):
        if word.replace("=", ":") not in ("no-new-privileges", "no-new-privileges:true"):
            reason = f"{word!r} cannot be had: the sandbox has its own seccomp filter and Landlock rules"
            raise OptionError(option, f"{reason}; no-new-privileges is always on")


def _tmpfs(wishes: Wishes, option: str, value: object) -> None:
    for folder, size in values.tmpfs(option, value):
        if folder not in ("/tmp", "/tmp/"):
            raise OptionError(option, f"{folder!r} cannot be one; /tmp is, and beside it the workspace can be written")
        if size is not None:
            wishes.limit("disk", values.checked(option, parse_size, size), option)


def _volumes(wishes: Wishes, option: str, value: object) -> None:
    wishes.volumes += read_volumes(option, value)


def _user(wishes: Wishes, option: str, value: object) -> None:
    name = str(value).partition(":")[0]
    if name in ("root", "0", ""):
        raise OptionError(option, f"{value!r} is refused: nothing in a sandbox is root")
    if value not in _UNPRIVILEGED:
        known = " or ".join(repr(name) for name in _UNPRIVILEGED)
        raise OptionError(option, f"{value!r}: a sandbox has one unprivileged user of its own; say {known}, or nothing")


def _environment(wishes: Wishes, option: str, value: object) -> None:
    wishes.environment.update(values.variables(option, value))


def _private(wishes: Wishes, option: str, value: object) -> None:
    if value not in ("private", "none"):
        raise OptionError(option, f"{value!r} would share it with others; each run has its own")


_REMOVED = _only(True, "a sandbox is always removed when it stops; with work_dir its files stay")
_DEVICES = _nothing("a sandbox has no devices")
_NO_NETWORK = _nothing("a sandbox has no network of Docker's; write rules into a policy")

_HANDLERS: dict[str, Handler] = {
    "auto_remove": _REMOVED,
    "remove": _REMOVED,
    "rm": _REMOVED,
    "stop_container": _only(True, "a sandbox never outlives its executor"),
    "init": _only(True, "process 1 of a run always collects what others leave"),
    "read_only": _only(True, "the root file system is always read-only; the workspace and /tmp can be written"),
    "privileged": _only(False, "nothing in a sandbox has privileges"),
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
    "cap_add": _nothing("a sandbox has no capabilities"),
    "group_add": _nothing("a sandbox has one group of its own"),
    "cap_drop": _cap_drop,
    "security_opt": _security_opt,
    "user": _user,
    "ipc": _private,
    "ipc_mode": _private,
    "mem_limit": partial(_size, "memory"),
    "memory": partial(_size, "memory"),
    "memswap_limit": _memory_and_swap,
    "memory_swap": _memory_and_swap,
    "cpus": _cpus,
    "nano_cpus": _nano_cpus,
    "cpu_period": _cpu_period,
    "cpu_quota": _cpu_quota,
    "pids_limit": partial(_count, "processes"),
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
