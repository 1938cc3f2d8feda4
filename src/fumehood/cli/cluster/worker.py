"""`hood worker`: offers the sandboxes of this host to the servers of a cluster."""

from __future__ import annotations

import argparse
import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

from fumehood import __version__
from fumehood.cli.arguments import Parser
from fumehood.cli.cluster.command import cluster_folder
from fumehood.cli.commands import UncollectedImports
from fumehood.cli.interruption import Interruption
from fumehood.cli.log_output import show_warnings
from fumehood.cli.output import say
from fumehood.cluster.folder import FOLDER, WORKER, WORKER_FILE
from fumehood.errors import UsageError
from fumehood.policy import read_seconds

if TYPE_CHECKING:
    from fumehood.cluster.worker import ClusterWorker

_DETAILS = """\
The first time, --join brings a token of `hood cluster token`; credentials are
kept in the folder, and later `hood worker` alone goes on with them. SIGTERM
lets sandboxes end within the time to drain; a second one does not wait.
"""
_SLOTS_OF_CORE = 16


class Arguments(argparse.Namespace):
    join: str | None
    folder: str | None
    slots: int | None
    backend: list[str]
    label: list[str]
    drain: str


def build_parser() -> argparse.ArgumentParser:
    description = "Offer the sandboxes of this host to the servers of a cluster."
    parser = Parser(prog="hood worker", description=description, epilog=_DETAILS, usage="hood worker [options]")
    add = parser.add_argument
    add("--join", metavar="TOKEN", help="a join token, or the file of one")
    add("--folder", metavar="FOLDER", help="of its credentials, its audit logs and what its tenants keep")
    add("--slots", metavar="N", type=int, help=f"how many sandboxes at once ({_SLOTS_OF_CORE} for each processor)")
    add(
        "--backend",
        metavar="NAME",
        action="append",
        default=[],
        help="native, docker, gvisor or microvm (native; repeatable)",
    )
    add("--label", metavar="KEY=VALUE", action="append", default=[], help="shown by `hood workers` (repeatable)")
    add("--drain", metavar="TIME", default="10m", help="how long sandboxes may go on after SIGTERM (10m)")
    return parser


def execute(arguments: list[str]) -> int:
    from fumehood.cluster.connection import require_extra

    chosen = build_parser().parse_args(arguments, namespace=Arguments())
    require_extra()
    with UncollectedImports():
        from fumehood.backends.native.delegation import use_delegated_cgroup
        from fumehood.cluster.worker import ClusterWorker
    slots = (os.cpu_count() or 1) * _SLOTS_OF_CORE if chosen.slots is None else chosen.slots
    if slots < 1:
        raise UsageError("--slots: at least one")
    for backend in chosen.backend:
        if backend not in ("native", "docker", "gvisor", "microvm"):
            raise UsageError(f"--backend: {backend!r} is not one of native, docker, gvisor and microvm")
    labels = dict(_label(text) for text in chosen.label)
    use_delegated_cgroup()
    show_warnings()
    return asyncio.run(_work(ClusterWorker, chosen, slots, labels, Interruption()))


def _label(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not key or not separator:
        raise UsageError(f"--label: {text!r} must be KEY=VALUE")
    return key, value


async def _work(
    worker_of: type[ClusterWorker], chosen: Arguments, slots: int, labels: dict[str, str], interruption: Interruption
) -> int:
    from fumehood.cluster.credentials import MemberCredentials
    from fumehood.cluster.join import join_cluster
    from fumehood.cluster.worker_service import WorkerOffer

    folder = cluster_folder(chosen.folder)
    FOLDER.make(folder)
    path = folder / WORKER_FILE
    if chosen.join is not None:
        _check_new(path)
        (await join_cluster(chosen.join)).write(path)
    elif not path.exists():
        raise UsageError(f"there are no credentials in {folder}; bring a token with --join")
    offer = WorkerOffer(slots, tuple(chosen.backend or ["native"]), labels, __version__)
    worker = worker_of(MemberCredentials.read(path), folder / WORKER, offer)
    signals = 0
    running = asyncio.ensure_future(
        worker.run(read_seconds(chosen.drain, "--drain"), lambda: say(f"worker {worker.name} is ready"))
    )

    def stop(_: object) -> None:
        nonlocal signals
        signals += 1
        worker.stop()
        if signals > 1:
            running.cancel()

    with interruption.handing_to(stop):
        await asyncio.wait([running])
    return 0 if running.cancelled() else running.result() or 0


def _check_new(path: Path) -> None:
    if path.exists():
        raise UsageError(f"this host has joined already: {path}; leave --join out, or choose another --folder")
