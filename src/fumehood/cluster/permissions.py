"""What each kind of member may publish and subscribe to: its own part of the cluster, and nothing else."""

from __future__ import annotations

from fumehood.cluster import subjects
from fumehood.cluster.stream_accounts import STREAMS_API
from fumehood.frozen import frozen

ANSWER_SECONDS = 60.0
CLAIMS_UPDATE = "$SYS.REQ.CLAIMS.UPDATE"


@frozen
class Permissions:
    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    answers: float = 0
    """For so many seconds one answer to a message that asks for one, wherever that is to go."""


def of_worker(name: str) -> Permissions:
    """Its own entry and its own messages. It reads the last entry that has its name, and no other."""
    return Permissions(
        publish=(
            subjects.entry(name),
            f"{STREAMS_API}.DIRECT.GET.{subjects.WORKERS_STREAM}.{subjects.entry(name)}",
            subjects.down("*", name, "*", "*"),
        ),
        subscribe=(
            subjects.up(name, "*", "*", "*"),
            subjects.beat("*"),
            subjects.order(name),
            subjects.stored(name),
            f"{subjects.inbox(name)}.>",
        ),
    )


def of_server(name: str) -> Permissions:
    stream = subjects.WORKERS_STREAM
    return Permissions(
        publish=(
            subjects.up("*", name, "*", "*"),
            subjects.beat(name),
            subjects.order("*"),
            f"{STREAMS_API}.STREAM.CREATE.{stream}",
            f"{STREAMS_API}.STREAM.INFO.{stream}",
        ),
        subscribe=(
            subjects.down(name, "*", "*", "*"),
            subjects.stored("*"),
            subjects.join("*"),
            f"{subjects.inbox(name)}.>",
        ),
        answers=ANSWER_SECONDS,
    )


def of_observer(name: str, account: str) -> Permissions:
    """A server's user of the system account: who has disconnected from the cluster's account."""
    return Permissions((), (f"$SYS.ACCOUNT.{account}.DISCONNECT", f"{subjects.inbox(name)}.>"))


def of_administrator(name: str) -> Permissions:
    """Gives NATS accounts. A server may not: it could bring back one from which a member was removed."""
    return Permissions((CLAIMS_UPDATE,), (f"{subjects.inbox(name)}.>",))


def of_space_maker(name: str) -> Permissions:
    """Makes the streams of a space in a tenant's account; runtimes need no right to it."""
    publish = (f"{STREAMS_API}.STREAM.INFO.*", f"{STREAMS_API}.STREAM.CREATE.*")
    return Permissions(publish, (f"{subjects.inbox(name)}.>",))


def of_newcomer(identifier: str) -> Permissions:
    """One that has a join token: it asks for credentials once, and hears the answer."""
    return Permissions((subjects.join(identifier),), (f"{subjects.inbox(identifier)}.>",))
