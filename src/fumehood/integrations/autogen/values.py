"""Parsers for the values of container options, in the forms of Docker's command line and of its Python SDK."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, cast

from fumehood.integrations.autogen.options import OptionError
from fumehood.policy import parse_size

# Options that the sandbox's tmpfs mounts have anyway.
_TMPFS_OPTIONS = ("rw", "nosuid", "nodev")


@dataclass(frozen=True)
class Volume:
    """A folder of the host that the sandbox shows. `option` is where it was asked for."""

    source: str
    target: str
    mode: Literal["ro", "rw"]
    option: str


def size(option: str, value: object) -> int:
    """Bytes, as a number or as policies spell it ("512m")."""
    try:
        return parse_size(value)
    except ValueError as error:
        raise OptionError(option, f"{value!r}: {error}") from None


def flag(option: str, value: object) -> bool:
    # Truthiness must not decide: the text "false" is true.
    if not isinstance(value, bool):
        raise OptionError(option, f"must be True or False, not {value!r}")
    return value


def positive(option: str, value: object) -> int:
    number = positive_number(option, value)
    if number != int(number):
        raise OptionError(option, f"must be a whole number, not {value!r}")
    return int(number)


def positive_number(option: str, value: object) -> float:
    """Docker's 0 and -1 for "no limit" are not valid: everything has a limit."""
    try:
        number = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else -1.0
    except ValueError:
        number = -1.0
    if not 0 < number < float("inf"):
        raise OptionError(option, f"must be a number above zero, not {value!r}; everything has a limit here")
    return number


def nano_cpus(option: str, value: object) -> float:
    return positive(option, value) / 10**9


def words(option: str, value: object) -> list[str]:
    items = cast("list[object]", value) if isinstance(value, list) else [value]
    if not all(isinstance(item, str) for item in items):
        raise OptionError(option, f"must be a list of words, not {value!r}")
    return cast("list[str]", items)


def mapping(option: str, value: object) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise OptionError(option, f"must be a mapping, not {value!r}")
    return cast("Mapping[str, object]", value)


def named(option: str, value: object) -> Mapping[str, object]:
    """{"pids-limit": 128}, or ["--pids-limit=128", "--read-only"] as on a command line."""
    if not isinstance(value, list):
        return mapping(option, value)
    found: dict[str, object] = {}
    for word in words(option, cast("object", value)):
        name, is_set, text = word.partition("=")
        if not name.startswith("--"):
            raise OptionError(option, f"{word!r} must be written as --name=value")
        found.setdefault(name, text if is_set else True)
        if found[name] != (text if is_set else True):
            raise OptionError(f"{option}.{name}", "is given twice; write several values as a list in a mapping")
    return found


def variables(option: str, value: object) -> Iterator[tuple[str, str]]:
    """{"NAME": "value"} or ["NAME=value"]; a bare NAME would pass on a variable of the host."""
    if isinstance(value, Mapping):
        yield from _texts(option, cast("Mapping[str, object]", value))
        return
    for word in words(option, value):
        name, is_set, text = word.partition("=")
        if not is_set:
            raise OptionError(option, f"{word!r} would pass on a variable of the host; write NAME=value")
        yield name, text


def _texts(option: str, given: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    for name, text in given.items():
        if not isinstance(text, str):
            raise OptionError(f"{option}.{name}", f"must be text, not {text!r}")
        yield name, text


def ulimits(option: str, value: object) -> Iterator[tuple[str, object]]:
    """[{"Name": "nofile", "Soft": 64, "Hard": 128}], ["nofile=64:128"] or {"nofile": 64}; the lower of two holds."""
    if isinstance(value, Mapping):
        yield from cast("Mapping[str, object]", value).items()
        return
    for item in cast("list[object]", value) if isinstance(value, list) else [value]:
        yield _ulimit(option, item)


def _ulimit(option: str, item: object) -> tuple[str, object]:
    if isinstance(item, str):
        name, _, numbers = item.partition("=")
        limits = [positive_or_zero(f"{option}.{name}", text) for text in numbers.split(":")]
        return name, min(limits)
    entry = {key.lower(): part for key, part in mapping(option, item).items()}
    name = str(entry.get("name"))
    limits = [positive_or_zero(f"{option}.{name}", entry[key]) for key in ("soft", "hard") if key in entry]
    if not limits:
        raise OptionError(option, f"{item!r} has neither a soft nor a hard limit")
    return name, min(limits)


def positive_or_zero(option: str, value: object) -> int:
    return 0 if str(value) == "0" else positive(option, value)


def tmpfs(option: str, value: object) -> Iterator[tuple[str, str | None]]:
    """{"/tmp": "size=64m"} or ["/tmp:size=64m"]: the folder and its size."""
    pairs = (
        _texts(option, cast("Mapping[str, object]", value))
        if isinstance(value, Mapping)
        else _tmpfs_words(option, value)
    )
    for folder, text in pairs:
        size: str | None = None
        for part in filter(None, text.split(",")):
            name, _, given = part.partition("=")
            if name == "size":
                size = given
            elif part not in _TMPFS_OPTIONS:
                raise OptionError(option, f"{part!r} is not supported; {folder} is nosuid, nodev and limited by size")
        yield folder, size


def _tmpfs_words(option: str, value: object) -> Iterator[tuple[str, str]]:
    for word in words(option, value):
        folder, _, text = word.partition(":")
        yield folder, text


def volumes(option: str, value: object) -> Iterator[Volume]:
    """{"/host": {"bind": "/data", "mode": "ro"}} or ["/host:/data:ro"]. Read-only unless they say otherwise."""
    if isinstance(value, Mapping):
        for source, place in cast("Mapping[str, object]", value).items():
            yield _read_place(f"{option}[{source!r}]", source, place)
        return
    for word in words(option, value):
        source, _, rest = word.partition(":")
        target, _, mode = rest.partition(":")
        yield _volume(f"{option}[{word!r}]", source, target, mode or "ro")


def _read_place(option: str, source: str, place: object) -> Volume:
    entry = mapping(option, place)
    unknown = sorted(entry.keys() - {"bind", "mode"})
    if unknown:
        raise OptionError(option, f"{unknown[0]!r} cannot be enforced; a volume has bind and mode")
    return _volume(option, source, entry.get("bind"), entry.get("mode", "ro"))


def _volume(option: str, source: str, target: object, mode: object) -> Volume:
    if not isinstance(target, str) or not target:
        raise OptionError(option, "does not say where it is bound in the sandbox")
    if mode not in ("ro", "rw"):
        raise OptionError(option, f"mode {mode!r} cannot be enforced; it is ro or rw")
    folder = os.path.expanduser(source)
    if not os.path.isabs(folder):
        raise OptionError(
            option, "is a volume that Docker keeps, or a relative path; give an absolute path of the host"
        )
    # The policy judges the folder that a link leads to.
    return Volume(os.path.realpath(folder), target, mode, option)
