"""The values of container options, in each of the forms that people write: of the command line, and of the SDK."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar, cast

from fumehood.integrations.autogen.refusals import OptionError

T = TypeVar("T")

# What tmpfs mounts of ours have anyway.
_TMPFS_TRUISMS = ("rw", "nosuid", "nodev")


def checked(option: str, parse: Callable[[object], T], value: object) -> T:
    try:
        return parse(value)
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
    """Docker's 0 and -1 for "no limit" are none of these: nothing is unbounded."""
    try:
        number = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else -1.0
    except ValueError:
        number = -1.0
    if not 0 < number < float("inf"):
        raise OptionError(option, f"must be a number above zero, not {value!r}; everything has a limit here")
    return number


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
    """{"NAME": "value"} or ["NAME=value"]; a bare NAME would let a value of the host's in."""
    if isinstance(value, Mapping):
        yield from _texts(option, cast("Mapping[str, object]", value))
        return
    for word in words(option, value):
        name, is_set, text = word.partition("=")
        if not is_set:
            raise OptionError(option, f"{word!r} would pass on a variable of the host's; write NAME=value")
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
        raise OptionError(option, f"{item!r} says no limit")
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
            elif part not in _TMPFS_TRUISMS:
                raise OptionError(option, f"{part!r} cannot be had; {folder} is nosuid and nodev, and size limits it")
        yield folder, size


def _tmpfs_words(option: str, value: object) -> Iterator[tuple[str, str]]:
    for word in words(option, value):
        folder, _, text = word.partition(":")
        yield folder, text
