"""What an agent may do besides thinking: tools, policies, topics, other agents. Nothing, unless it is granted.

Pure: the runtime asks before each message, tool and sandbox, whatever the agent or its model says.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict

from fumehood.errors import UsageError
from fumehood.keywords import unknown_keyword
from fumehood.policy import AnyPolicy, Policy, read_policy
from fumehood.policy.digest import compute_digest
from fumehood.runtime.identity import AgentId, TopicId
from fumehood.runtime.patterns import Pattern

_DIGEST = "sha256:"


def _checked_pattern(text: str) -> str:
    try:
        return str(Pattern.parse(text))
    except UsageError as error:
        raise ValueError(str(error)) from None


def _policy_digest(value: object) -> object:
    """Digests are taken as they are; a policy in any other form is read."""
    if isinstance(value, str) and value.startswith(_DIGEST):
        return value
    try:
        return digest_of(read_policy(cast("AnyPolicy", value), "policies"))
    except UsageError as error:
        raise ValueError(f"{error}; must be a policy, its file, or the digest of one (`hood policy show`)") from None


def digest_of(policy: Policy) -> str:
    """Computed anew: the one that the object carries is only as good as whoever made the object."""
    return compute_digest(policy)


PatternText = Annotated[str, AfterValidator(_checked_pattern)]
PolicyDigest = Annotated[str, BeforeValidator(_policy_digest)]


class Grants(BaseModel):
    """`Grants(agents=["writer"], publish=["news.*"], tools=["python"], policies=[policy])`; `Grants()` is nothing.

    `runtime.patterns` has the spelling of agents and topics; `{key}` is the agent's own key.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    agents: tuple[PatternText, ...] = ()
    """To whom it may send messages. Answering needs no grant."""
    publish: tuple[PatternText, ...] = ()
    subscribe: tuple[PatternText, ...] = ()
    tools: tuple[str, ...] = ()
    """By name; the tools themselves are the runtime's."""
    policies: tuple[PolicyDigest, ...] = ()
    """Under which it may open sandboxes: exactly these, by digest."""

    if TYPE_CHECKING:
        # Lists and policies may be given as well, which the fields' own types do not say.
        def __init__(
            self,
            *,
            agents: Sequence[str] = (),
            publish: Sequence[str] = (),
            subscribe: Sequence[str] = (),
            tools: Sequence[str] = (),
            policies: Sequence[AnyPolicy] = (),
        ) -> None: ...
    else:

        def __init__(self, **fields):
            if not fields.keys() <= type(self).model_fields.keys():
                raise unknown_keyword("Grants", fields, type(self).model_fields)
            super().__init__(**fields)

    def may_send(self, own_key: str, to: AgentId) -> bool:
        return any(pattern.covers(to, own_key) for pattern in self._agents)

    def may_publish(self, own_key: str, topic: TopicId) -> bool:
        return any(pattern.covers(topic, own_key) for pattern in self._publish)

    def may_receive(self, own_key: str, topic: TopicId) -> bool:
        return any(pattern.covers(topic, own_key) for pattern in self._subscribe)

    def may_subscribe(self, wanted: Pattern) -> bool:
        return any(pattern.contains(wanted) for pattern in self._subscribe)

    def may_call(self, tool: str) -> bool:
        return tool in self.tools

    def may_open(self, policy: Policy) -> bool:
        # A child of Policy could say anything of itself.
        return type(policy) is Policy and digest_of(policy) in self.policies

    @cached_property
    def _agents(self) -> tuple[Pattern, ...]:
        return tuple(map(Pattern.parse, self.agents))

    @cached_property
    def _publish(self) -> tuple[Pattern, ...]:
        return tuple(map(Pattern.parse, self.publish))

    @cached_property
    def _subscribe(self) -> tuple[Pattern, ...]:
        return tuple(map(Pattern.parse, self.subscribe))
