"""Which files are meant: those that were named, and in folders the YAML files that are policies.

A repository is full of YAML that is none of ours, and a policy with a mistake in it must not be passed over in silence.
So a file in a folder is known by a look at its lines, which works however broken the rest of it is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

from fumehood.errors import PolicyError
from fumehood.policy.loading import read_file
from fumehood.policy.source import visible

_SUFFIXES = (".yaml", ".yml")
_VERSION = re.compile(rb"^\s*\{?\s*[\"']?version[\"']?:\s*1\s*(?:[#,}]|$)", re.MULTILINE)
_SECTION = re.compile(
    rb"^(?:backend|strict|filesystem|network|resources|environment|secrets|commands|approvals|docker|tests):",
    re.MULTILINE,
)
_TEST = re.compile(rb"\bexpect[\"']?:\s*[\"']?(?:allow|deny)\b")


@dataclass(frozen=True, slots=True)
class Found:
    policies: list[str]
    problems: list[str]
    """What could not be looked at, one line each."""


def find_policies(paths: list[str]) -> Found:
    policies, problems = dict[str, str](), list[str]()
    for path in paths:
        # Whatever is wrong with a file that was named, loading it will tell.
        for found in _search(path, problems) if os.path.isdir(path) else (path,):
            policies.setdefault(os.path.abspath(found), found)
    if not policies and not problems:
        problems.append(f"{', '.join(map(visible, paths))}: there is no policy here; name a file or another folder")
    return Found(list(policies.values()), problems)


def _search(folder: str, problems: list[str]) -> Iterator[str]:
    def note(error: OSError) -> None:
        problems.append(f"{visible(str(error.filename))}: cannot be searched: {error.strerror}")

    for place, folders, files in os.walk(folder, onerror=note):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            path = os.path.normpath(os.path.join(place, name))
            try:
                if name.endswith(_SUFFIXES) and _is_policy(read_file(path)):
                    yield path
            except PolicyError as error:
                problems += error.problems


def _is_policy(text: bytes) -> bool:
    return _TEST.search(text) is not None or (_VERSION.search(text) is not None and _SECTION.search(text) is not None)
