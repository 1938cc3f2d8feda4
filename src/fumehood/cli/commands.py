"""Every command of `hood`, in the order in which help lists them. A new command is a line here and a module.

The module offers `build_parser() -> argparse.ArgumentParser` (also read by shell completion) and
`execute(arguments: list[str]) -> int`, which returns the exit code.
"""

from __future__ import annotations

import gc
from importlib import import_module

TYPE_CHECKING = False  # as type checkers read it; `hood --help` needs this module, and none of these
if TYPE_CHECKING:
    import argparse
    from typing import Any, Protocol

    class CommandModule(Protocol):
        def build_parser(self) -> argparse.ArgumentParser: ...

        def execute(self, arguments: list[str]) -> int: ...


class Command:
    __slots__ = ("is_listed", "module", "name", "summary")

    def __init__(self, name: str, module: str, summary: str, *, is_listed: bool = True) -> None:
        """One that is not listed in help is named in the summary of another that is."""
        self.name, self.module, self.summary, self.is_listed = name, module, summary, is_listed

    def load(self) -> CommandModule:
        with UncollectedImports():
            module: Any = import_module(self.module)
        return module


class UncollectedImports:
    """For the time of imports, which make many objects and no garbage, garbage is not collected."""

    def __enter__(self) -> None:
        gc.disable()

    def __exit__(self, *error: object) -> None:
        gc.freeze()
        gc.enable()


COMMANDS = (
    Command("run", "fumehood.cli.run", "run a program in a fresh sandbox"),
    Command("shell", "fumehood.cli.shell", "an interactive shell in a sandbox"),
    Command("sandbox", "fumehood.cli.sandbox", "sandboxes that last: create, exec, snapshot, fork, export"),
    Command("agent", "fumehood.cli.agent", "give a task to a model whose code runs in a sandbox"),
    Command("serve", "fumehood.cli.server.serve", "serve tenants; also: hood tenant, key, quota, cluster, worker"),
    Command("tenant", "fumehood.cli.server.tenants", "tenants of a server: create, list, remove", is_listed=False),
    Command("key", "fumehood.cli.server.keys", "keys of a server's tenants: create, list, revoke", is_listed=False),
    Command("quota", "fumehood.cli.server.quotas", "what a server's tenants may have: show, set", is_listed=False),
    Command("cluster", "fumehood.cli.cluster.command", "the members of a cluster of hosts", is_listed=False),
    Command("worker", "fumehood.cli.cluster.worker", "offer the sandboxes of this host to a cluster", is_listed=False),
    Command("workers", "fumehood.cli.cluster.workers", "the workers of a server's cluster", is_listed=False),
    Command("login", "fumehood.cli.login", "open sandboxes at a server from now on; also: hood logout, whoami"),
    Command("logout", "fumehood.cli.logout", "forget the server of `hood login`", is_listed=False),
    Command("whoami", "fumehood.cli.whoami", "where sandboxes are opened, and as whom", is_listed=False),
    Command("mcp", "fumehood.cli.mcp", "sandboxes for clients of the Model Context Protocol"),
    Command("jupyter", "fumehood.cli.jupyter", "a kernel for Jupyter whose cells run in a sandbox"),
    Command("init", "fumehood.cli.init", "write hood.yaml, the policy of the project in this folder"),
    Command("doctor", "fumehood.cli.doctor", "what isolation works here, and how to get what does not"),
    Command("prove", "fumehood.cli.prove", "try every control of a policy here, and write a signed report"),
    Command("policy", "fumehood.cli.policy", "check, show, compare or test policy files"),
    Command("audit", "fumehood.cli.audit", "what happened in sandboxes, and whether it is true"),
    Command("approvals", "fumehood.cli.approvals", "calls that wait for an approval, and the answer to them"),
    Command("console", "fumehood.cli.console", "both of these in a browser, as they happen"),
    Command("env", "fumehood.cli.env", "list, build or remove the packages that policies name"),
    Command("image", "fumehood.cli.image", "build, list, inspect or remove images for containers"),
    Command("keeper", "fumehood.cli.keeper.command", "the process that makes `hood run` quick: is it there, end it"),
    Command("gc", "fumehood.cli.gc", "remove what dead processes left behind"),
    Command("bench", "fumehood.cli.bench", "what a sandboxed run costs, side by side with plain python"),
    Command("completion", "fumehood.cli.completion", "print the completion script for a shell"),
)
BY_NAME = {command.name: command for command in COMMANDS}
