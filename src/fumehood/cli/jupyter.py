"""`hood jupyter`: installs or removes a kernel for Jupyter whose cells run in a sandbox."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from fumehood.cli.arguments import Parser
from fumehood.errors import UsageError

_MAGIC = """For single cells of any other kernel there is a magic, %%hood, after
`%load_ext fumehood`."""
_INSTALLED = """Notebooks then have the kernel "Python in a sandbox". Without --policy nothing
is allowed in it."""


class Arguments(argparse.Namespace):
    act: Callable[[Arguments], int]
    name: str
    policy: str | None
    sys_prefix: bool


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="hood jupyter", description="A kernel for Jupyter whose cells run in a sandbox.", epilog=_MAGIC
    )
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    install = verbs.add_parser(
        "install", help="tell Jupyter of the kernel", description="Tell Jupyter of the kernel.", epilog=_INSTALLED
    )
    install.add_argument("--policy", metavar="FILE", help="a policy file, or the name of a built-in policy")
    install.add_argument("--sys-prefix", action="store_true", help="in this Python environment, not for the user")
    install.set_defaults(act=_install)
    remove = verbs.add_parser("remove", help="remove the kernel", description="Remove a kernel that was installed.")
    remove.set_defaults(act=_remove)
    for verb in (install, remove):
        verb.add_argument("--name", default="fumehood", help="of the kernel: one for each policy (default: fumehood)")
    return parser


def execute(arguments: list[str]) -> int:
    chosen = build_parser().parse_args(arguments, namespace=Arguments())
    try:
        return chosen.act(chosen)
    except ImportError as error:
        raise UsageError(str(error)) from error


def _install(chosen: Arguments) -> int:
    from fumehood.integrations.jupyter import kernelspec

    prefix = sys.prefix if chosen.sys_prefix else None
    print(f"installed {kernelspec.install(chosen.name, chosen.policy, prefix=prefix)}")
    return 0


def _remove(chosen: Arguments) -> int:
    from fumehood.integrations.jupyter import kernelspec

    print(f"removed {kernelspec.remove(chosen.name)}")
    return 0
