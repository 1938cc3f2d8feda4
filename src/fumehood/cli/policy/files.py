"""The verbs of `hood policy` about where policies come from: `list`, `trust` and `distrust`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from fumehood.characters import one_line
from fumehood.cli import exitcodes, policy_choice, project_policy, trust
from fumehood.cli.output import BOLD, RED, paint
from fumehood.errors import UsageError
from fumehood.policy import Policy
from fumehood.policy.named import NAMES, summary_of
from fumehood.policy.source import read_file

if TYPE_CHECKING:
    from fumehood.cli.arguments import Verbs
    from fumehood.cli.policy import Arguments

_FILE_HELP = "a hood.yaml, or its folder (default: the one that `hood run` would find here)"
_TRUST = """\
Trust a hood.yaml as it is now, and print what it opens. A file that was not
trusted, or has changed since, is refused, unless --policy names it.
"""


def add_parsers(verbs: Verbs) -> None:
    shown = verbs.add_parser("list", help="the policies that come with hood", description="Policies for --policy NAME.")
    shown.set_defaults(act=_list)
    trusted = verbs.add_parser("trust", help="let a hood.yaml count, as it is now", description=_TRUST)
    trusted.add_argument("place", nargs="?", metavar="FILE", help=_FILE_HELP)
    trusted.set_defaults(act=_trust)
    description = "Trust a hood.yaml no more, also one that is gone."
    distrusted = verbs.add_parser("distrust", help="take that back", description=description)
    distrusted.add_argument("place", nargs="?", metavar="FILE", help=_FILE_HELP)
    distrusted.set_defaults(act=_distrust)


def _list(chosen: Arguments) -> int:
    width = max(map(len, NAMES))
    for name in NAMES:
        print(f"{paint(f'{name:{width}}', BOLD)}  {summary_of(name)}")
    return 0


def _trust(chosen: Arguments) -> int:
    path = _path(chosen.place)
    project_policy.refuse_foreign(path, "copy it to a folder of your own")
    content = read_file(path)
    policy = Policy.load_content(content, path)
    project_policy.refuse_links_out(policy, path)
    lines = project_policy.changes(policy, trust.trusted_content(path), path)
    project_policy.trust(path, content, policy)
    print(f"{one_line(path)} is trusted as it is now{'. It' if lines else '; it opens nothing new'}")
    for line in lines:
        print(f"  {one_line(line)}")
    for danger in policy.dangers():
        print(f"{paint('danger', RED)}: {one_line(f'{danger.key}: {danger.message}')}")
    return 0


def _distrust(chosen: Arguments) -> int:
    path = _path(chosen.place)
    was_trusted = trust.forget(path)
    print(f"{one_line(path)} {'is trusted no more' if was_trusted else 'was not trusted'}")
    return 0 if was_trusted else exitcodes.PROBLEM_FOUND


def _path(place: str | None) -> str:
    """The absolute path, by which a policy is known, whether or not there is a file."""
    if place is None:
        found = policy_choice.find(os.getcwd())
        if found is None:
            raise UsageError(f"there is no {policy_choice.NAME} here or above; `hood init` writes one")
        return found
    folder = os.path.realpath(place if os.path.isdir(place) else os.path.dirname(place))
    if not os.path.isdir(place) and os.path.basename(place) != policy_choice.NAME:
        raise UsageError(
            f"{place!r} is not called {policy_choice.NAME}; other files are used by --policy, without trust"
        )
    return os.path.join(folder, policy_choice.NAME)
