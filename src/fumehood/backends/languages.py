"""The languages that a run can be in: one entry each, nothing else to change."""

from __future__ import annotations

from dataclasses import dataclass

from fumehood.errors import UsageError


@dataclass(frozen=True, slots=True)
class Language:
    name: str
    suffix: str
    interpreter: tuple[str, ...] | None
    """The command in front of the script; None for Python, which runs in the warm interpreter itself."""


LANGUAGES = {
    language.name: language
    for language in (
        Language("python", ".py", None),
        Language("sh", ".sh", ("/bin/sh",)),
        Language("bash", ".bash", ("/bin/bash",)),
    )
}


def find_language(name: str) -> Language:
    try:
        return LANGUAGES[name]
    except KeyError:
        raise UsageError(f"unknown language {name!r}; available: {', '.join(LANGUAGES)}") from None
