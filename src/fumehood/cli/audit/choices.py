"""What can be chosen on the command line of `hood audit`, and what it means."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from fumehood.audit.moments import moment
from fumehood.audit.store import Query


class Arguments(argparse.Namespace):
    act: Callable[[Arguments], int]
    log: str | None
    id: str
    file: str | None
    key: str | None
    checkpoint: list[str]
    fleet: str | None
    count: int
    follow: bool
    json: bool
    otel: bool
    since: str | None
    until: str | None
    kind: str | None
    run: str | None
    sandbox: str | None
    status: str | None
    text: str | None
    limit: int
    output: str | None
    csv: str | None
    older_than: str
    archive: str | None


def place(chosen: Arguments) -> Path | None:
    return Path(chosen.log) if chosen.log is not None else None


def add_filters(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--since", metavar="TIME", help="not before this time")
    add("--until", metavar="TIME", help="before this time")
    add("--kind", metavar="KIND", help="run.finished; `run` means all that begin with it")
    add("--run", metavar="ID", help="of this run")
    add("--sandbox", metavar="ID", help="of this sandbox")
    add(
        "--status",
        metavar="STATUS",
        help="how a run ended: success, error, timeout, resource_exceeded, cancelled; denied also finds requests, "
        "connections and calls that were denied, and sandboxes that were refused",
    )


def query(chosen: Arguments, *, text: str | None = None, limit: int | None = None) -> Query:
    return Query(
        since=_moment(chosen.since, "--since"),
        until=_moment(chosen.until, "--until"),
        kind=chosen.kind,
        run_id=chosen.run,
        sandbox_id=chosen.sandbox,
        status=chosen.status,
        text=text,
        newest_first=limit is not None,
        limit=limit,
    )


def _moment(text: str | None, option: str) -> str | None:
    return None if text is None else moment(text, option)
