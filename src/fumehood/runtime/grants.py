"""Grants: which tools, policies, topics and agents an agent may use; nothing by default.

Pure functions: the runtime asks before each message, tool call and sandbox.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict

from fumehood.errors import UsageError
from fumehood.keywords import unknown_keyword
from fumehood.policy import AnyPolicy, Policy, read_policy
from fumehood.policy.canonical_form import compute_digest
from fumehood.runtime.identity import AgentId, Pattern, TopicId

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
    """Computed from the fields: the digest that the object carries could have been set by its maker."""
    return compute_digest(policy)


def _with_digests_alone(value: object) -> object:
    if isinstance(value, dict):
        policies = cast("dict[str, object]", value).get("policies", ())
        given = cast("list[object]", policies) if isinstance(policies, list) else []
        if not all(isinstance(each, str) and each.startswith(_DIGEST) for each in given):
            raise ValueError("policies of another process's grants must be digests")
    return cast("object", value)


PatternText = Annotated[str, AfterValidator(_checked_pattern)]
PolicyDigest = Annotated[str, BeforeValidator(_policy_digest)]


class Grants(BaseModel):
    """`Grants(agents=["writer"], publish=["news.*"], tools=["python"], policies=[policy])`; `Grants()` is nothing.

    `runtime.identity.Pattern` describes the syntax of agents and topics; `{key}` is the agent's own key.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    agents: tuple[PatternText, ...] = ()
    """Agents that it may send messages to. Answering needs no grant."""
    publish: tuple[PatternText, ...] = ()
    subscribe: tuple[PatternText, ...] = ()
    tools: tuple[str, ...] = ()
    """The names of tools; the tools themselves are the runtime's."""
    policies: tuple[PolicyDigest, ...] = ()
    """Policies under which it may open sandboxes: exactly these, by digest."""

    if TYPE_CHECKING:
        # Lists and policies are accepted as well, which the fields' own types do not express.
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
        # A subclass of Policy could report any digest.
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


WrittenGrants = Annotated[Grants, BeforeValidator(_with_digests_alone)]
"""Grants as another process has written them. A policy in any other form would be read, from a file of this machine."""
