"""Subjects, streams and consumers of a runtime on NATS, and the permissions that a process needs; pure.

A message to a process names, in its subject, the process that sent it, and the agent type for which it speaks. NATS
lets a process publish under its own name and types alone, so that the subject proves the sender.

    fh.SPACE.to.PROCESS.INCARNATION.BY.INCARNATION.ask.SENDER   a request; SENDER is an agent type, or ! (application)
    fh.SPACE.to. ... .answer.MESSAGE                            its answer
    fh.SPACE.to. ... .cancel | .probe | .probed                 the sender stopped waiting | is it being handled?
    fh.SPACE.publication.PARTITION.BY.SENDER.TYPE               a publication for agents of a type, in a stream
    fh.SPACE.directory.process.PROCESS, type.TYPE, grants.TYPE  entries of the directory, in a stream
    fh.SPACE.news.>                                             the same, as the stream has stored it
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from fumehood.errors import UsageError
from fumehood.runtime.identity import AgentId, check_type

PARTITIONS = 16
"""Agents of a type are divided by their keys into so many partitions, each of which has one home."""

APPLICATION = "!"
"""Stands for the application in a subject, which needs no grants. NATS misreads subjects with an @ between servers."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Address(NamedTuple):
    """One start of a process: the messages of an earlier one are not accepted."""

    process: str
    incarnation: str


class Parcel(NamedTuple):
    """What the subject of a message to a process says."""

    by: Address
    kind: str
    detail: str


def check_name(text: str, what: str) -> str:
    if not _NAME.fullmatch(text):
        raise UsageError(f"{what} is made of at most 64 letters, digits, _ and -; this is not: {text[:64]!r}")
    return text


@lru_cache(10_000)
def type_token(type: str) -> str:
    """A type as one level of a subject."""
    return type.replace(".", "/")


@lru_cache(10_000)
def partition_of(agent: AgentId) -> int:
    return int.from_bytes(hashlib.sha256(str(agent).encode()).digest()[:4], "big") % PARTITIONS


def sender_token(sender: AgentId | None) -> str:
    return APPLICATION if sender is None else type_token(sender.type)


@dataclass(frozen=True, slots=True)
class Subjects:
    """The names in one space: runtimes in different spaces of an account do not see each other."""

    space: str
    api_prefix: str = "$JS.API"
    """Of questions to JetStream; another one where the streams are in another account."""

    def __post_init__(self) -> None:
        check_name(self.space, "a space's name")

    @property
    def root(self) -> str:
        return f"fh.{self.space}"

    @property
    def directory_stream(self) -> str:
        return f"FH_{self.space}_DIRECTORY"

    @property
    def publication_stream(self) -> str:
        return f"FH_{self.space}_PUBLICATIONS"

    def api(self, question: str, *names: str) -> str:
        """Where JetStream is asked something."""
        return ".".join((self.api_prefix, question, *names))

    def inbox(self, process: str) -> str:
        """The prefix of the subjects under which a process gets answers of NATS itself."""
        return f"_INBOX.{process}"

    def to(self, to: Address, by: Address, kind: str, detail: str = "") -> str:
        end = f".{detail}" if detail else ""
        return f"{self.root}.to.{to.process}.{to.incarnation}.{by.process}.{by.incarnation}.{kind}{end}"

    def read_to(self, subject: str) -> Parcel:
        _, _, _, _, _, process, incarnation, kind, *detail = subject.split(".")
        return Parcel(Address(process, incarnation), kind, detail[0] if detail else "")

    def to_all(self, to: Address) -> str:
        return f"{self.root}.to.{to.process}.{to.incarnation}.>"

    def publication(self, agent: AgentId, process: str, sender: AgentId | None) -> str:
        return (
            f"{self.root}.publication.{partition_of(agent)}.{process}.{sender_token(sender)}.{type_token(agent.type)}"
        )

    def publications(self, type: str, partition: int) -> str:
        return f"{self.root}.publication.{partition}.*.*.{type_token(type)}"

    def is_publication(self, subject: str) -> bool:
        return subject.startswith(f"{self.root}.publication.")

    def publisher(self, subject: str) -> str:
        """The process that has stored a publication."""
        return subject.split(".")[4]

    def consumer(self, type: str, partition: int) -> str:
        return f"{hashlib.sha256(type.encode()).hexdigest()[:20]}_{partition}"

    def entry(self, key: str) -> str:
        return f"{self.root}.directory.{key}"

    def news_key(self, subject: str) -> str:
        return subject.removeprefix(f"{self.root}.news.")

    def entry_key(self, subject: str) -> str:
        return subject.removeprefix(f"{self.root}.directory.")


@dataclass(frozen=True, slots=True)
class ProcessPermissions:
    """Subjects that NATS must allow a process; everything else is denied."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]


def process_permissions(
    process: str,
    types: Sequence[str] = (),
    *,
    application: bool = False,
    grants: bool = False,
    space: str = "default",
    api_prefix: str = "$JS.API",
) -> ProcessPermissions:
    """The least that a process needs which may be the home of these types of agents.

    `application` lets it send as the application, which needs no grants. `grants` lets it write the grants of its
    types, and without it they must be in the directory before it registers them.
    """
    subjects, tokens = Subjects(space, api_prefix), [type_token(check_type(type, "an agent's type")) for type in types]
    check_name(process, "a process's name")
    senders = [*tokens, *([APPLICATION] if application else [])]
    mine = f"{subjects.root}.to.*.*.{process}.*"
    streams = (subjects.directory_stream, subjects.publication_stream)
    publish = [
        *(f"{mine}.{kind}" for kind in ("answer.*", "cancel", "probe", "probed")),
        *(f"{mine}.ask.{sender}" for sender in senders),
        *(f"{subjects.root}.publication.*.{process}.{sender}.*" for sender in senders),
        subjects.entry(f"process.{process}"),
        *(subjects.entry(f"type.{token}") for token in tokens),
        *(subjects.entry(f"grants.{token}") for token in tokens if grants),
        *(subjects.api("STREAM.INFO", stream) for stream in streams),
        subjects.api("STREAM.MSG.GET", subjects.directory_stream),
        *(each for type in types for number in range(PARTITIONS) for each in _consumption(subjects, type, number)),
    ]
    subscribe = (f"{subjects.root}.to.{process}.*.>", f"{subjects.root}.news.>", f"{subjects.inbox(process)}.>")
    return ProcessPermissions(tuple(publish), subscribe)


def _consumption(subjects: Subjects, type: str, partition: int) -> tuple[str, ...]:
    stream, consumer = subjects.publication_stream, subjects.consumer(type, partition)
    return (
        subjects.api("CONSUMER.CREATE", stream, consumer, subjects.publications(type, partition)),
        subjects.api("CONSUMER.MSG.NEXT", stream, consumer),
        f"$JS.ACK.{stream}.{consumer}.>",
    )
