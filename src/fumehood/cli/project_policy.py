"""`hood.yaml`, the policy of a project: where it is looked for, and when it counts.

It is looked for in the current folder and in those above it, up to the user's home, on one file system. A folder that
every user may write to, such as /tmp, ends the search: others can put files there, though not move what lies below.
What is found counts only if its user trusts it and no other user can change it; otherwise the command is refused.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from fumehood.characters import one_line
from fumehood.errors import UsageError
from fumehood.policy import Policy
from fumehood.policy.paths import is_inside
from fumehood.policy.source import read_file, visible

NAME = "hood.yaml"
_MOST_LINES = 12


def find(start: str) -> str | None:
    """The nearest project policy, whoever wrote it. UsageError if a nearer one was trusted and is gone."""
    passed: list[str] = []
    for folder in _folders(start):
        path = os.path.join(folder, NAME)
        if os.path.lexists(path):
            _refuse_if_gone(passed, path)
            return path
        passed.append(path)
    return None


def load(path: str) -> Policy:
    """The policy in a file that `find` returned; UsageError unless it is trusted as it is now."""
    from fumehood.cli.trust import trusted_content

    refuse_foreign(path)
    content = read_file(path)
    trusted = trusted_content(path)
    if content != trusted:
        raise UsageError(_refusal(path, content, trusted))
    policy = Policy.load_content(content, path)
    refuse_links_out(policy, path)
    return policy


def refuse_links_out(policy: Policy, path: str) -> None:
    """UsageError if a path that looks like one of the project leads out of it: what it leads to is in no policy."""
    from fumehood.cli.policy_paths import paths_in

    project = os.path.dirname(path)
    for named in paths_in(policy):
        target = os.path.realpath(named) if is_inside(named, project) else named
        if target != named and not is_inside(target, project):
            raise UsageError(
                f"{visible(path)} names {visible(named)}, a link that leads out of the project to {visible(target)}; "
                f"name that place itself, or {_remedies(path)}"
            )


def refuse_foreign(path: str) -> None:
    """UsageError if another user can change the file, or put another in its place."""
    for place in (os.path.dirname(path), path):
        try:
            details = os.stat(place)
        except FileNotFoundError:
            continue  # a file that is not there yet, or a link to nothing, which cannot be read
        if details.st_uid not in (0, os.geteuid()):
            raise UsageError(f"{visible(place)} belongs to another user (uid {details.st_uid}); {_remedies(path)}")
        if details.st_mode & stat.S_IWOTH:
            raise UsageError(f"every user can write to {visible(place)}; `chmod o-w` it, or {_remedies(path)}")


def is_shared(folder: os.stat_result) -> bool:
    """Whether every user may put files there, as in /tmp."""
    return bool(folder.st_mode & stat.S_ISVTX and folder.st_mode & stat.S_IWOTH)


def changes(policy: Policy, trusted: bytes | None, path: str) -> list[str]:
    """What the policy changes, in words: against the trusted one, else against a sandbox without a policy."""
    try:
        before = Policy() if trusted is None else Policy.load_content(trusted, path)
    except UsageError:
        before = Policy()
    return before.diff(policy)


def _folders(start: str) -> Iterator[str]:
    home = os.path.realpath(os.path.expanduser("~"))
    folder, device = start, None
    while True:
        try:
            details = os.stat(folder)
        except OSError:
            return
        if device not in (None, details.st_dev) or is_shared(details):
            return
        yield folder
        if folder in ("/", home):
            return
        folder, device = os.path.dirname(folder), details.st_dev


def _refuse_if_gone(passed: list[str], found: str) -> None:
    """A program that may write to a project could remove its policy, so that a wider one further up would count."""
    import shlex

    from fumehood.cli.trust import trusted_content

    for path in passed:
        if trusted_content(path) is not None:
            raise UsageError(
                f"{visible(path)}, which you trusted, is gone, and {visible(found)} would count instead; "
                f"`hood policy distrust {shlex.quote(visible(path))}` agrees to that; {_remedies(found)}"
            )


def _refusal(path: str, content: bytes, trusted: bytes | None) -> str:
    if trusted is None:
        what = f"{visible(path)} is not trusted: you did not write it with `hood init`. It"
    else:
        what = f"{visible(path)} has changed since you trusted it. It now"
    lines = changes(Policy.load_content(content, path), trusted, path) or ["changes nothing that is enforced"]
    shown = [f"  {one_line(line)}" for line in lines[:_MOST_LINES]]
    if len(lines) > _MOST_LINES:
        shown.append(f"  ... and {len(lines) - _MOST_LINES} more; `hood policy show {os.path.relpath(path)}`")
    return "\n".join([what, *shown, f"read it, then `hood policy trust`; {_remedies(path)}"])


def _remedies(path: str) -> str:
    return f"--policy {os.path.relpath(path)} uses it once, --no-config does without"
