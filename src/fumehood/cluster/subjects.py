"""Subjects of the cluster's account. Who speaks to whom is in the subject, so that NATS proves it.

`fh.up.<worker>.<server>.<instance>.<channel>` carries messages of a server to a worker, and
`fh.down.<server>.<worker>.<instance>.<channel>` those of the worker; an instance is a process of the server. A server
may publish what has its own name in the place of the server, and a worker what has its own in that of the worker.
"""

from __future__ import annotations

import re

from fumehood.errors import UsageError

WORKERS_BUCKET = "workers"
WORKERS_STREAM = f"KV_{WORKERS_BUCKET}"
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_REPORT = "report"


def check_member_name(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise UsageError(f"{name!r} cannot be a name in a cluster: write 1 to 63 of a-z, 0-9 and '-'")
    return name


def up(worker: str, server: str, instance: str, channel: str) -> str:
    return f"fh.up.{worker}.{server}.{instance}.{channel}"


def down(server: str, worker: str, instance: str, channel: str) -> str:
    return f"fh.down.{server}.{worker}.{instance}.{channel}"


def beat(server: str) -> str:
    """A server says every second that it lives."""
    return f"fh.beat.{server}"


def order(worker: str) -> str:
    """A server says that it holds an epoch of this worker for lost, or that the worker is to end."""
    return f"fh.order.{worker}"


def report(server: str, worker: str, instance: str) -> str:
    """What runs have used, and checkpoints of audit logs."""
    return down(server, worker, instance, _REPORT)


def is_report(channel: str) -> bool:
    return channel == _REPORT


def join(identifier: str) -> str:
    return f"fh.join.{identifier}"


def entry(worker: str) -> str:
    """The worker's entry in the bucket of all workers."""
    return f"$KV.{WORKERS_BUCKET}.{worker}"


def stored(worker: str) -> str:
    """The same, when it is stored: only NATS says so."""
    return f"fh.stored.{worker}"


def inbox(member: str) -> str:
    """The prefix of a member's own inboxes, which no other may subscribe to."""
    return f"_INBOX.{member}"
