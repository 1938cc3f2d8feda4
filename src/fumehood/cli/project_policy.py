"""`hood.yaml`, the policy of a project: when one that was found counts.

It counts only if its user trusts it as it is and no other user can change it. Otherwise the command is refused, with
what the policy would open.
"""

from __future__ import annotations

import os
import stat

from fumehood.characters import one_line
from fumehood.errors import UsageError
from fumehood.policy import Policy
from fumehood.policy.paths import is_inside
from fumehood.policy.source import read_file, visible

_MOST_LINES = 12
# Behind the path of a policy, where what its requirements file lists is remembered.
_LISTED = " requirements"


def load(path: str) -> Policy:
    """The policy in a file that `find` returned; UsageError unless it is trusted as it is now."""
    from fumehood.cli.trust import trusted_content

    refuse_foreign(path, _remedies(path))
    content = read_file(path)
    trusted = trusted_content(path)
    if content != trusted:
        raise UsageError(_refusal(path, content, trusted))
    policy = Policy.load_content(content, path)
    refuse_links_out(policy, path)
    _refuse_other_packages(policy, path)
    return policy


def trust(path: str, content: bytes, policy: Policy) -> None:
    """From now on the file counts, and the list of packages that it names, as long as both are what they are now."""
    from fumehood.cli.trust import remember

    packages = _packages(policy)
    remember(path, content)
    if packages is not None:
        remember(path + _LISTED, packages)


def _refuse_other_packages(policy: Policy, path: str) -> None:
    """UsageError if the list of packages is another than when the policy was trusted.

    A program that may write to a project could have names of its choice sent to the index, its only way out.
    """
    from fumehood.cli.trust import trusted_content

    packages = _packages(policy)
    if packages is not None and packages != trusted_content(path + _LISTED):
        raise UsageError(
            f"{visible(policy.environment.requirements or '')} lists other packages than when you trusted "
            f"{visible(path)}, which names it; read it, then `hood policy trust`; {_remedies(path)}"
        )


def _packages(policy: Policy) -> bytes | None:
    """A digest of what the policy's requirements file asks for; None if it names none."""
    if policy.environment.requirements is None:
        return None
    from fumehood.environments import EnvironmentSpec

    return EnvironmentSpec.of(policy.environment).request.encode()


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


def refuse_if_gone(passed: list[str], found: str) -> None:
    """UsageError if one of the policies that are not there was trusted.

    A program that may write to a project could remove its policy, so that a wider one further up would count.
    """
    import shlex

    from fumehood.cli.trust import trusted_content

    for path in passed:
        if trusted_content(path) is not None:
            raise UsageError(
                f"{visible(path)}, which you trusted, is gone, and {visible(found)} would count instead; "
                f"`hood policy distrust {shlex.quote(visible(path))}` agrees to that; {_remedies(found)}"
            )


def refuse_foreign(path: str, remedy: str) -> None:
    """UsageError if another user can change the file, or put another in its place."""
    for place in (os.path.dirname(path), path):
        try:
            details = os.stat(place)
        except OSError:
            continue  # a file that is not there yet, or cannot be read, which is said when it is read
        if details.st_uid not in (0, os.geteuid()):
            raise UsageError(f"{visible(place)} belongs to another user (uid {details.st_uid}); {remedy}")
        if details.st_mode & stat.S_IWOTH:
            raise UsageError(f"every user can write to {visible(place)}; `chmod o-w` it, or {remedy}")


def changes(policy: Policy, trusted: bytes | None, path: str) -> list[str]:
    """What the policy changes, in words: against the trusted one, else against a sandbox without a policy."""
    try:
        before = Policy() if trusted is None else Policy.load_content(trusted, path)
    except UsageError:
        before = Policy()
    return before.diff(policy)


def _refusal(path: str, content: bytes, trusted: bytes | None) -> str:
    if trusted is None:
        what = f"{visible(path)} is not trusted: you did not write it with `hood init`. It"
    else:
        what = f"{visible(path)} has changed since you trusted it. It now"
    lines = changes(Policy.load_content(content, path), trusted, path) or ["changes nothing that is enforced"]
    shown = [f"  {one_line(line)}" for line in lines[:_MOST_LINES]]
    if len(lines) > _MOST_LINES:
        shown.append(f"  ... and {len(lines) - _MOST_LINES} more; `hood policy show {os.path.relpath(path)}`")
    return "\n".join([what, *shown, "read it, then `hood policy trust`;", _remedies(path)])


def _remedies(path: str) -> str:
    return f"--policy {os.path.relpath(path)} uses it once, --no-config does without"
