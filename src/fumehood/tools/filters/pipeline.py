"""The way of a text to or from a model: what is looked for, in which order, and what is done about it.

    invisible -> canaries -> secrets -> tokens -> host paths, credentials, addresses -> size

What is invisible goes first, since it could stand inside of a secret; the size comes last, since a cut could leave half
of one. `sift` decides and changes nothing else; `apply` also tells the audit log, and raises alarms.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from fumehood.audit.events import AuditEvent, CanarySeen
from fumehood.audit.trail import OFF, Trail
from fumehood.keywords import known_keywords
from fumehood.policy import Policy
from fumehood.policy.filters import Reaction
from fumehood.secret_scan.canaries import GROWTH, CanaryAlert, load_canaries
from fumehood.secret_scan.redaction import Redaction
from fumehood.secret_scan.spans import TextSpan, replace_spans
from fumehood.secret_scan.values import SHORTEST, SecretValue, Text
from fumehood.tools.filters import mentions
from fumehood.tools.filters.invisible import make_visible
from fumehood.tools.filters.tokens import find_tokens
from fumehood.tools.result import head_and_tail


@dataclass(frozen=True, slots=True)
class FilterActed(AuditEvent):
    kind = "filter.acted"

    direction: str
    filter: str
    action: str
    what: str
    count: int


CANARIES = "canaries"
_WINDOW = 128


class Direction(StrEnum):
    TO_MODEL = "to_model"
    FROM_MODEL = "from_model"
    TOOL_RESULT = "tool_result"


@dataclass(frozen=True, slots=True)
class Act:
    """Something that was found, how often, and what was done about it."""

    filter: str
    action: str
    what: str
    count: int


@dataclass(frozen=True, slots=True)
class Filtered:
    text: str
    """What may be passed on; when it is blocked, why there is nothing."""
    acts: tuple[Act, ...] = ()

    @property
    def is_blocked(self) -> bool:
        return any(act.action == "block" for act in self.acts)


Find = Callable[[str], Iterable[TextSpan]]


class Pipeline:
    """The content filters of one policy. `secrets` and `canaries` are names and values besides those of the policy."""

    @known_keywords()
    def __init__(
        self,
        policy: Policy,
        *,
        secrets: Mapping[str, str] | None = None,
        canaries: Mapping[str, str] | None = None,
        trail: Trail = OFF,
        on_alarm: Callable[[CanaryAlert], None] | None = None,
    ) -> None:
        self._rules, self._trail, self._on_alarm = policy.filters, trail, on_alarm
        self._policy = policy
        values = Redaction.for_policy(policy, os.environ).values
        self._secrets = (
            *(SecretValue("secret", value) for value in values if len(value) >= SHORTEST),
            *(SecretValue(f"secret {name}", value) for name, value in (secrets or {}).items()),
        )
        self.canaries = (
            *load_canaries(policy, os.environ),
            *(SecretValue(name, value) for name, value in (canaries or {}).items()),
        )

    @cached_property
    def window(self) -> int:
        """How many characters a find can stretch over that has spaces in it, so that a stream knows how much to hold
        back: the longest form of a known value. Formats of credentials need less, or are one word."""
        return max([_WINDOW, *(len(known.value) * GROWTH for known in (*self._secrets, *self.canaries))])

    @property
    def removes_hidden(self) -> bool:
        return self._rules.invisible == "strip"

    async def apply(self, text: str, direction: Direction) -> Filtered:
        """Filters a text like `sift`, and records it. If the record cannot be written, the text is not passed on."""
        filtered = self.sift(text)
        await self.tell(filtered, direction)
        return filtered

    async def judge(self, texts: Iterable[str], direction: Direction) -> Filtered | None:
        """Checks texts that are passed on unchanged or blocked, such as a call's arguments; the first blocked one.

        What would be taken out of another text is only recorded.
        """
        for text in texts:
            filtered = self._sift(text, removes=False)
            await self.tell(filtered, direction)
            if filtered.is_blocked:
                return filtered
        return None

    async def tell(self, filtered: Filtered, direction: Direction) -> None:
        events = [FilterActed(direction, act.filter, act.action, act.what, act.count) for act in filtered.acts]
        alarms = [CanaryAlert(act.what, direction) for act in filtered.acts if act.filter == CANARIES]
        await self._trail.write(*events, *(CanarySeen(alarm.canary, alarm.where) for alarm in alarms))
        for alarm in alarms:
            if self._on_alarm is not None:
                self._on_alarm(alarm)

    def sift(self, text: str, *, is_part: bool = False) -> Filtered:
        """Filters a text; a part, of which the whole is filtered later, only for what must not be cut in two."""
        return self._sift(text, removes=True, is_part=is_part)

    def _sift(self, text: str, *, removes: bool, is_part: bool = False) -> Filtered:
        acts: list[Act] = []
        if self.removes_hidden and (visible := make_visible(text)) != text:
            acts.append(hidden_characters(len(text) - len(visible), "strip" if removes else "flag"))
            text = visible
        for name, wanted, find in self._stages():
            reaction: Reaction = "flag" if wanted == "strip" and not removes else wanted
            is_off = reaction == "off" or (reaction == "flag" and is_part)
            spans = [] if is_off else list(find(text))
            if not spans:
                continue
            acts += [Act(name, reaction, what, count) for what, count in Counter(span.what for span in spans).items()]
            if reaction == "block":
                kinds = (
                    ", ".join(dict.fromkeys(span.what for span in spans)) if name != CANARIES else "what must not leave"
                )
                return Filtered(f"[withheld by policy: the text holds {kinds}]", tuple(acts))
            if reaction == "strip":
                text = replace_spans(text, [_unnamed(span) if name == CANARIES else span for span in spans])
        if removes and not is_part and len(text) > self._rules.size:
            acts.append(Act("size", "strip", "characters beyond the limit", len(text) - self._rules.size))
            text = head_and_tail(text, self._rules.size)
        return Filtered(text, tuple(acts))

    def spans(self, text: str) -> Iterator[TextSpan]:
        """Whatever would be taken out of this text, or block it."""
        for _, reaction, find in self._stages():
            if reaction in ("strip", "block"):
                yield from find(text)

    def _stages(self) -> tuple[tuple[str, Reaction, Find], ...]:
        rules, policy = self._rules, self._policy
        return (
            (CANARIES, rules.on_canary, lambda text: _find_known(text, self.canaries)),
            ("secrets", rules.secrets, lambda text: _find_known(text, self._secrets)),
            ("tokens", rules.tokens, find_tokens),
            ("host_paths", rules.host_paths, lambda text: mentions.find_host_paths(text, policy)),
            ("credentials", rules.credentials, lambda text: mentions.find_credentials(text, policy)),
            ("network", rules.network, lambda text: mentions.find_addresses(text, policy)),
        )


def hidden_characters(count: int, action: str = "strip") -> Act:
    return Act("invisible", action, "hidden characters", max(1, count))


def _find_known(text: str, known: tuple[SecretValue, ...]) -> Iterator[TextSpan]:
    if known:
        seen = Text(text)
        for each in known:
            yield from _without_repeats(seen.find(each))


def _without_repeats(spans: Iterable[TextSpan]) -> Iterator[TextSpan]:
    """The same place in two forms is one find."""
    end = -1
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        if span.end > end:
            yield span
            end = span.end


def _unnamed(span: TextSpan) -> TextSpan:
    """A model need not learn that there are canaries."""
    return TextSpan(span.start, span.end, "text")
