"""Streams are in an account of their own, and members reach them through what that account exports to theirs.

JetStream answers wherever a question says, with rights that the one who asks does not have. If a stream were in the
members' own account, a member could have an answer stored as another's entry. An answer that has crossed from one
account into another goes to subscriptions there, and into no stream.
"""

from __future__ import annotations

from typing import Any

from fumehood.cluster import subjects
from fumehood.frozen import frozen

SUFFIX = "/streams"
"""Not part of any tenant's name."""


STREAMS_API = "fh.js"
"""The prefix of questions to JetStream: under its own one it answers that the members' account has no streams."""
_API = "$JS.API"


@frozen
class SharedSubject:
    """What the account of the streams lets the members' account use."""

    subject: str
    is_heard: bool = False
    """Messages from the streams' account; otherwise messages to it, which it may answer."""
    has_many_answers: bool = False

    def exported(self) -> dict[str, Any]:
        return {"name": self.subject, "subject": self.subject, "type": self._kind} | (
            {"response_type": "Stream"} if self.has_many_answers else {}
        )

    def imported(self, account: str) -> dict[str, Any]:
        local = self.subject.replace(_API, STREAMS_API)
        renamed = {} if local == self.subject else {"local_subject": local}
        return {"name": self.subject, "subject": self.subject, "type": self._kind, "account": account} | renamed

    @property
    def _kind(self) -> str:
        return "stream" if self.is_heard else "service"


OF_CLUSTER = (
    SharedSubject(subjects.entry("*")),
    SharedSubject(f"{_API}.STREAM.CREATE.{subjects.WORKERS_STREAM}"),
    SharedSubject(f"{_API}.STREAM.INFO.{subjects.WORKERS_STREAM}"),
    SharedSubject(f"{_API}.DIRECT.GET.{subjects.WORKERS_STREAM}.{subjects.entry('*')}"),
    SharedSubject(subjects.stored("*"), is_heard=True),
)
OF_RUNTIMES = (
    SharedSubject("fh.*.directory.>"),
    SharedSubject("fh.*.publication.>"),
    SharedSubject("fh.*.news.>", is_heard=True),
    SharedSubject(f"{_API}.STREAM.CREATE.*"),
    SharedSubject(f"{_API}.STREAM.INFO.*"),
    SharedSubject(f"{_API}.STREAM.MSG.GET.*"),
    SharedSubject(f"{_API}.CONSUMER.CREATE.>"),
    SharedSubject(f"{_API}.CONSUMER.MSG.NEXT.*.*", has_many_answers=True),
    SharedSubject("$JS.ACK.>"),
)
"""`runtime/nats/subjects.py` has these subjects; which of them a process may use is in its token."""
