"""Names: who an agent is, and what a topic is about. Text that can be written to a log or a subject as it is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from fumehood.errors import UsageError

# Types become parts of subjects in a distributed runtime; dots divide them into levels.
_TYPE = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_LONGEST_TYPE = 128
_LONGEST_KEY = 256
_REMEMBERED = 1000

DEFAULT = "default"


@dataclass(frozen=True, slots=True, order=True)
class AgentId:
    """`AgentId("reader", "tenant-7")`: agents of one type share code and grants, the key tells them apart."""

    type: str
    key: str = DEFAULT

    def __post_init__(self) -> None:
        check_type(self.type, "an agent's type")
        check_key(self.key, "an agent's key")

    @classmethod
    @lru_cache(_REMEMBERED)
    def parse(cls, text: str) -> AgentId:
        """From `type/key`, or `type` alone."""
        type, slash, key = text.partition("/")
        return cls(type, key) if slash else cls(type)

    def __str__(self) -> str:
        return f"{self.type}/{self.key}"


@dataclass(frozen=True, slots=True, order=True)
class TopicId:
    """`TopicId("builds.finished", "project-7")`: an agent that is subscribed gets it under the source as its key."""

    type: str
    source: str = DEFAULT

    def __post_init__(self) -> None:
        check_type(self.type, "a topic's type")
        check_key(self.source, "a topic's source")

    @classmethod
    @lru_cache(_REMEMBERED)
    def parse(cls, text: str) -> TopicId:
        """From `type/source`, or `type` alone."""
        type, slash, source = text.partition("/")
        return cls(type, source) if slash else cls(type)

    def __str__(self) -> str:
        return f"{self.type}/{self.source}"


def check_type(text: str, what: str) -> str:
    if not _TYPE.fullmatch(text) or len(text) > _LONGEST_TYPE:
        raise UsageError(
            f"{what} is made of letters, digits, _ and -, with dots in between, at most {_LONGEST_TYPE}; "
            f"this is not: {text[:_LONGEST_TYPE]!r}"
        )
    return text


def check_key(text: str, what: str) -> str:
    if not text or len(text) > _LONGEST_KEY or not text.isprintable():
        raise UsageError(f"{what} is 1 to {_LONGEST_KEY} printable characters; this is not: {text[:_LONGEST_KEY]!r}")
    return text
