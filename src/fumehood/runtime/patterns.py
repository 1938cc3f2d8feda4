"""What a grant or a subscription names: one agent or topic, all keys of a type, all topics below a level.

    reader              every key of it                 builds.finished     this topic, from every source
    reader/anna         this one                        builds.finished/7   from this source
    reader/{key}        the one with the key that       builds.*            every topic below builds
                        the agent itself has            *                   every one

A star stands for whole levels: `builds.*` is not `builds2`, and not `builds` either.
"""

from __future__ import annotations

from dataclasses import dataclass

from fumehood.runtime.identity import AgentId, TopicId, check_key, check_type

OWN_KEY = "{key}"
_ALL = "*"
_BELOW = ".*"


@dataclass(frozen=True, slots=True)
class Pattern:
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
        """Whether an agent with this key means that agent or topic by it."""
        if not self.covers_type(name.type):
            return False
        if self.key is None:
            return True
        key = name.key if isinstance(name, AgentId) else name.source
        return key == (own_key if self.key == OWN_KEY else self.key)

    def contains(self, other: Pattern) -> bool:
        """Whether whatever the other one covers is covered by this one too."""
        is_type_inside = (
            other.type.startswith(self.type) if self.is_prefix else not other.is_prefix and self.type == other.type
        )
        return is_type_inside and (self.key is None or self.key == other.key)

    def __str__(self) -> str:
        type = f"{self.type}*" if self.is_prefix else self.type
        return type if self.key is None else f"{type}/{self.key}"
