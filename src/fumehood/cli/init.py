"""`hood init`: a policy for the project in the current folder, with a comment on everything in it."""

from __future__ import annotations

import argparse
import os

from fumehood.cli import policy_choice, project_policy, trust
from fumehood.cli.arguments import Parser
from fumehood.errors import UsageError
from fumehood.policy import Policy
from fumehood.policy.named import NAMES, file_of, is_name
from fumehood.policy.source import read_file

_DETAILS = """\
`hood run`, `hood shell`, `hood agent` and `hood mcp` use hood.yaml in this
folder and below it, unless --policy or --no-config is given. It is trusted as
it is written here; after a change run `hood policy trust`.
"""
_HEAD = b"""\
# What code may do that `hood run`, `hood shell`, `hood agent` and `hood mcp`
# start in this folder and below. After a change: `hood policy trust`.
# `hood policy reference` has every key, `hood policy explain KEY` one of them.
"""
_BODY = b"""\
version: 1

filesystem:
  # Files of the host that it sees. This would show it the folder of this file;
  # with `mode: rw` it could change what is in there, too.
  # mounts:
  #   - {source: ., target: /project, mode: ro}

  # Files of its workspace that `--out DIR` saves.
  outputs: ["out/**"]

# Hosts that it may reach, by name; `methods` lets it read and not write.
# network:
#   allow:
#     - {host: api.example.com, ports: [443], methods: [GET]}

# Python packages, installed once, from wheels.
# environment:
#   packages: [pandas]

# What one run may use.
resources:
  timeout: 30s
  memory: 512M
  disk: 256M
  processes: 64

# What is meant to hold: `hood policy test` checks it, also after changes.
tests:
  - {connect: "example.com:443", expect: deny}
  - {read: /etc/shadow, expect: deny}
  - {write: out/result.csv, expect: allow}
"""


class Arguments(argparse.Namespace):
    policy: str | None
    force: bool


def build_parser() -> argparse.ArgumentParser:
    description = "Write hood.yaml, the policy of the project in this folder, and trust it."
    parser = Parser(prog="hood init", description=description, epilog=_DETAILS)
    parser.add_argument("--policy", metavar="NAME", help=f"start from one of {', '.join(NAMES)}")
    parser.add_argument("--force", action="store_true", help="replace a hood.yaml that exists")
    return parser


def execute(arguments: list[str]) -> int:
    chosen = build_parser().parse_args(arguments, namespace=Arguments())
    content = _HEAD + (_BODY if chosen.policy is None else b"#\n" + _content_of(chosen.policy))
    path = os.path.join(os.getcwd(), policy_choice.NAME)
    Policy.load_content(content, path)
    if policy_choice.is_shared(os.stat(os.path.dirname(path))):
        raise UsageError("every user can write to this folder, so no hood.yaml in it is used; go to one of your own")
    project_policy.refuse_foreign(path, "go to a folder of your own")
    _write(path, content, may_replace=chosen.force)
    trust.remember(path, content)
    print(f"{policy_choice.NAME} is written and trusted; `hood run` uses it here and in the folders below")
    return 0


def _content_of(name: str) -> bytes:
    if not is_name(name):
        raise UsageError(f"--policy {name!r}: start from one of {', '.join(NAMES)}; a file can be copied to hood.yaml")
    return read_file(file_of(name, "--policy"))


def _write(path: str, content: bytes, *, may_replace: bool) -> None:
    """As a new file, so that no link decides what is overwritten."""
    if os.path.lexists(path) and not may_replace:
        raise UsageError(f"{policy_choice.NAME} exists already; --force replaces it, `hood policy trust` trusts it")
    draft = f"{path}.{os.getpid()}"
    try:
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        with open(handle, "wb") as file:
            file.write(content)
        os.replace(draft, path)
    except OSError as error:
        raise UsageError(f"{policy_choice.NAME} cannot be written here: {error.strerror}") from error
