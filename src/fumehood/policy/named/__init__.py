"""The policies that come with the package, each by its name: files beside this module.

A word with neither a slash nor a dot is such a name, everything else is the path of a file. So no file that happens to
lie in the current folder takes the place of a policy that comes with the package.
"""

from __future__ import annotations

import os

from fumehood.errors import UsageError
from fumehood.policy.source import visible

_FOLDER = os.path.dirname(__file__)
_SUFFIX = ".yaml"
NAMES = ("closed", "build", "data-science", "web-reader")


def is_name(text: str) -> bool:
    return bool(text) and "/" not in text and "." not in text


def file_of(policy: str, argument: str = "policy") -> str:
    """The file of a policy that is given by name or by path. UsageError names the `argument`."""
    if not is_name(policy):
        return policy
    if policy not in NAMES:
        raise UsageError(
            f"{argument} {visible(policy)!r}: no policy with this name comes with the package{_nearest(policy)}; "
            f"there are {', '.join(NAMES)}. A file is given with a slash or its suffix, such as ./{visible(policy)}"
        )
    return os.path.join(_FOLDER, policy + _SUFFIX)


def summary_of(name: str) -> str:
    """What it is for: the first line of its file."""
    with open(file_of(name), encoding="utf-8") as file:
        return file.readline().removeprefix("# ").rstrip("\n.")


def _nearest(name: str) -> str:
    from difflib import get_close_matches

    found = get_close_matches(name.lower(), NAMES, n=1)
    return f" (did you mean {found[0]!r}?)" if found else ""
