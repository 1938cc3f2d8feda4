"""Which files are meant: those that were named, and in folders the YAML files that are policies.

A repository is full of YAML that is none of ours, and a policy with a mistake in it must not be passed over in silence.
So a file in a folder is known by a look at its lines, which works however broken the rest of it is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from fumehood.policy.loading import MAX_BYTES
from fumehood.policy.source import visible

_SUFFIXES = (".yaml", ".yml")
_VERSION = re.compile(rb"^\s*\{?\s*[\"']?version[\"']?:\s*1\b", re.MULTILINE)
_SECTION = re.compile(
    rb"^(?:backend|strict|filesystem|network|resources|environment|secrets|commands|approvals|docker|tests):",
    re.MULTILINE,
)
_TEST = re.compile(rb"\bexpect[\"']?:\s*[\"']?(?:allow|deny)\b")


@dataclass
class Found:
    policies: list[str] = field(default_factory=list[str])
    problems: list[str] = field(default_factory=list[str])
    """What could not be looked at, one line each."""


def find_policies(paths: list[str]) -> Found:
    found = Found()
    for path in paths:
        if os.path.isdir(path):
            _search(path, found)
        else:
            # Whatever is wrong with a file that was named, loading it will tell.
            found.policies.append(path)
    found.policies = list(dict.fromkeys(found.policies))
    if not found.policies and not found.problems:
        found.problems.append(f"{', '.join(map(visible, paths))}: there is no policy here; name a file or a folder")
    return found


def _search(folder: str, found: Found) -> None:
    def note(error: OSError) -> None:
        found.problems.append(f"{visible(str(error.filename))}: cannot be searched: {error.strerror}")

    for path in _yaml_files(folder, note):
        try:
            if _is_policy(path):
                found.policies.append(path)
        except OSError as error:
            found.problems.append(f"{visible(path)}: cannot be read: {error.strerror}")


def _yaml_files(folder: str, note: object) -> Iterator[str]:
    assert callable(note)
    for place, folders, files in os.walk(folder, onerror=note):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            path = os.path.normpath(os.path.join(place, name))
            if name.endswith(_SUFFIXES) and os.path.isfile(path):
                yield path


def _is_policy(path: str) -> bool:
    with open(path, "rb") as file:
        text = file.read(MAX_BYTES + 1)
    return _TEST.search(text) is not None or (_VERSION.search(text) is not None and _SECTION.search(text) is not None)
