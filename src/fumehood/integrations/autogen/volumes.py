"""Volumes as Docker's users write them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import cast

from fumehood.integrations.autogen import values
from fumehood.integrations.autogen.refusals import OptionError
from fumehood.integrations.autogen.wishes import Volume


def read_volumes(option: str, value: object) -> Iterator[Volume]:
    """{"/host": {"bind": "/data", "mode": "ro"}} or ["/host:/data:ro"]. Read-only unless they say otherwise."""
    if isinstance(value, Mapping):
        for source, place in cast("Mapping[str, object]", value).items():
            yield _read_place(f"{option}[{source!r}]", source, place)
        return
    for word in values.words(option, value):
        source, _, rest = word.partition(":")
        target, _, mode = rest.partition(":")
        yield _volume(f"{option}[{word!r}]", source, target, mode or "ro")


def _read_place(option: str, source: str, place: object) -> Volume:
    entry = values.mapping(option, place)
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
    # Where it really leads is what has to be judged.
    return Volume(os.path.realpath(folder), target, mode, option)
