"""`hood env list | build | prune`: the packages that policies name, installed ahead of time, and removed."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

from fumehood.characters import neutralise
from fumehood.cli.arguments import Parser
from fumehood.cli.output import BOLD, paint, say
from fumehood.environments import EnvironmentSpec, EnvironmentStore, InstalledEnvironment
from fumehood.errors import UsageError
from fumehood.policy import Policy, read_policy
from fumehood.sandbox.async_sandbox import sandboxed_installer

_DAY_SECONDS = 24 * 3600
_MIB = 1024 * 1024
_KEY_CHARACTERS = 12
_KEPT = "Environments that a sandbox uses right now are kept. So is, without --all, what was used in the last 30 days."


class Arguments(argparse.Namespace):
    act: Callable[[Arguments], int]
    packages: list[str]
    policy: str | None
    all: bool
    json: bool


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="hood env", description="Installed packages that sandboxes see.")
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    listing = verbs.add_parser("list", help="what is installed", description="What is installed, last used first.")
    listing.add_argument("--json", action="store_true", help="print it as JSON, with everything that is known")
    listing.set_defaults(act=_list)
    build = verbs.add_parser(
        "build",
        help="install what a policy names",
        description="Install what a policy names, or the packages given, so that the first sandbox need not wait.",
    )
    build.add_argument("packages", nargs="*", metavar="PACKAGE", help="with versions if you like: 'pandas==2.3.*'")
    build.add_argument("--policy", metavar="FILE", help="instead of packages")
    build.set_defaults(act=_build)
    prune = verbs.add_parser(
        "prune", help="remove what is not used", description="Remove environments that are not used.", epilog=_KEPT
    )
    prune.add_argument("--all", action="store_true", help="also what was used lately")
    prune.set_defaults(act=_prune)
    return parser


def execute(arguments: list[str]) -> int:
    chosen = build_parser().parse_args(arguments, namespace=Arguments())
    return chosen.act(chosen)


def _list(chosen: Arguments) -> int:
    found = EnvironmentStore.open_default().list()
    if chosen.json:
        print(json.dumps([{**each.manifest.model_dump(mode="json"), "folder": str(each.folder)} for each in found]))
        return 0
    for environment in found:
        print(_in_words(environment))
    if not found:
        print("no environments; `hood env build PACKAGE` or a sandbox that needs one makes it")
    return 0


def _build(chosen: Arguments) -> int:
    environment = EnvironmentStore.open_default(sandboxed_installer()).build(_spec(chosen), say)
    print(_in_words(environment))
    return 0


def _spec(chosen: Arguments) -> EnvironmentSpec:
    if (chosen.policy is None) == (not chosen.packages):
        raise UsageError("give either packages or --policy FILE")
    if chosen.policy is None:
        return EnvironmentSpec.of(Policy(environment={"packages": chosen.packages}).environment)
    section = read_policy(chosen.policy, "--policy").environment
    if not section.has_packages:
        raise UsageError(f"{chosen.policy} names no packages: it has neither environment.packages nor .requirements")
    return EnvironmentSpec.of(section)


def _prune(chosen: Arguments) -> int:
    removed = EnvironmentStore.open_default().prune(unused_for_seconds=0 if chosen.all else 30 * _DAY_SECONDS)
    for environment in removed:
        print(f"removed {_in_words(environment)}")
    freed = sum(environment.manifest.size_bytes for environment in removed)
    print(f"removed {len(removed)}, freed {_size(freed)}" if removed else "nothing to remove")
    return 0


def _in_words(environment: InstalledEnvironment) -> str:
    manifest = environment.manifest
    asked = ", ".join(package.partition(" --hash")[0] for package in manifest.asked)
    key = paint(manifest.key[:_KEY_CHARACTERS], BOLD)
    facts = f"{len(manifest.installed)} installed, {_size(manifest.size_bytes)}, used {_ago(environment.used_at)}"
    return f"{key}  {neutralise(asked)} ({facts})"


def _size(size_bytes: int) -> str:
    return f"{size_bytes / _MIB:.1f} MiB"


def _ago(moment: float) -> str:
    days = int((time.time() - moment) // _DAY_SECONDS)
    return "today" if days <= 0 else f"{days} day{'s' * (days > 1)} ago"
