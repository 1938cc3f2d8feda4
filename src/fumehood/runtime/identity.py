"""Ids of agents and topics, and the patterns by which grants and subscriptions name them.

Ids are text that can be written to a log or a subject unchanged. Patterns:

    reader              every key of it                 builds.finished     this topic, from every source
    reader/anna         this one                        builds.finished/7   from this source
    reader/{key}        the one with the key that       builds.*            every topic below builds
                        the agent itself has            *                   every one

A star stands for whole levels: `builds.*` is not `builds2`, and not `builds` either.
"""

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
        """Parses `type/key`, or `type` alone."""
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
        """Parses `type/source`, or `type` alone."""
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


OWN_KEY = "{key}"
_ALL = "*"
_BELOW = ".*"


@dataclass(frozen=True, slots=True)
class Pattern:
    """One agent or topic, all keys of a type, or all topics below a level."""

    type: str
    """Whole, or up to and with the dot before the star; empty for all."""
    is_prefix: bool
    key: str | None
    """None is any; `{key}` is the agent's own."""

    @classmethod
    def parse(cls, text: str) -> Pattern:
        type, slash, key = text.partition("/")
        if slash:
            check_key(key, f"the part after the slash of {text!r}")
        wanted = key if slash else None
        if type == _ALL:
            return cls("", True, wanted)
        if type.endswith(_BELOW):
            return cls(check_type(type.removesuffix(_BELOW), f"the pattern {text!r}") + ".", True, wanted)
        return cls(check_type(type, f"the pattern {text!r}"), False, wanted)

    def covers_type(self, type: str) -> bool:
        return type.startswith(self.type) if self.is_prefix else type == self.type

    def covers(self, name: AgentId | TopicId, own_key: str) -> bool:
        """Whether the pattern matches that agent or topic, for an agent with this key."""
        if not self.covers_type(name.type):
            return False
        if self.key is None:
            return True
        key = name.key if isinstance(name, AgentId) else name.source
        return key == (own_key if self.key == OWN_KEY else self.key)

    def contains(self, other: Pattern) -> bool:
        """Whether this pattern matches everything that the other one matches."""
        is_type_inside = (
            other.type.startswith(self.type) if self.is_prefix else not other.is_prefix and self.type == other.type
        )
        return is_type_inside and (self.key is None or self.key == other.key)

    def __str__(self) -> str:
        type = f"{self.type}*" if self.is_prefix else self.type
        return type if self.key is None else f"{type}/{self.key}"
