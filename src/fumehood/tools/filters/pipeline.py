"""The way of a text to or from a model: what is looked for, in which order, and what is done about it.

    invisible -> canaries -> secrets -> tokens -> host paths, credentials, addresses -> size

What is invisible goes first, since it could stand inside of a secret; the size comes last, since a cut could leave half
of one. `sift` decides and changes nothing else; the other ways also tell the audit log, and raise alarms: `apply` for a
text, `show` for the parts of a tool's output, `judge` for what is passed on unchanged or not at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, partial

from fumehood.audit.events import AuditEvent, CanarySeen
from fumehood.audit.trail import OFF, Trail
from fumehood.keywords import known_keywords
from fumehood.policy import Policy
from fumehood.policy.filters import Reaction
from fumehood.policy.secret import PROCESS_SECRETS, SecretSource
from fumehood.secret_scan.canaries import GROWTH, CanaryAlert, load_canaries
from fumehood.secret_scan.redaction import Redaction
from fumehood.secret_scan.values import SHORTEST, SecretValue, Text, TextSpan, replace_spans
from fumehood.tools.filters import mentions
from fumehood.tools.filters.invisible import make_visible
from fumehood.tools.filters.tokens import find_tokens
from fumehood.tools.result import TextPart, head_and_tail


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
# What is done about a find, by what the policy says.
_REMOVING: Mapping[Reaction, Reaction] = {"strip": "strip", "block": "block"}
_FLAGGING: Mapping[Reaction, Reaction] = {"flag": "flag"}
_EVERYTHING: Mapping[Reaction, Reaction] = {**_REMOVING, **_FLAGGING}
_JUDGING: Mapping[Reaction, Reaction] = {"strip": "flag", "block": "block", "flag": "flag"}


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
    """The content filters of one policy. `secrets` and `canaries` are names and values besides those of the policy.

    `source` has the values of the policy's: those of a sandbox are in its `secrets`.
    """

    @known_keywords()
    def __init__(
        self,
        policy: Policy,
        *,
        secrets: Mapping[str, str] | None = None,
        canaries: Mapping[str, str] | None = None,
        trail: Trail = OFF,
        on_alarm: Callable[[CanaryAlert], None] | None = None,
        source: SecretSource = PROCESS_SECRETS,
    ) -> None:
        self._rules, self._trail, self._on_alarm = policy.filters, trail, on_alarm
        self._policy = policy
        values = Redaction.for_policy(policy, source).values
        self._secrets = (
            *(SecretValue("secret", value) for value in values if len(value) >= SHORTEST),
            *(SecretValue(f"secret {name}", value) for name, value in (secrets or {}).items()),
        )
        self.canaries = (
            *load_canaries(policy, source),
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
        return await self._recorded(self.sift(text), direction)

    async def show(self, parts: Iterable[TextPart], direction: Direction) -> Filtered:
        """One text of parts that may be long.

        What must not be passed on is taken out of each part before that is shortened, because half of a secret would
        not be recognised. What is only recorded is looked for in what is left.
        """
        shown: list[str] = []
        acts: list[Act] = []
        blocked = ""
        for part in parts:
            clean = self._filter(self._make_visible(part if isinstance(part, str) else part.text), _REMOVING)
            acts += clean.acts
            if clean.is_blocked:
                blocked = blocked or clean.text
            shown.append(clean.text if isinstance(part, str) else part.shortened(clean.text))
        if blocked:
            return await self._recorded(Filtered(blocked, tuple(acts)), direction)
        return await self._recorded(
            self._cut(self._filter(Filtered("".join(shown), tuple(acts)), _FLAGGING)), direction
        )

    def judge(self, texts: Iterable[str]) -> list[Filtered]:
        """What there is to `tell` of texts that are passed on unchanged or not at all, such as a call's arguments.

        A text that is blocked is the last of them. What would be taken out of another text is only flagged.
        """
        found: list[Filtered] = []
        for text in texts:
            filtered = self._filter(self._make_visible(text, "flag"), _JUDGING)
            if filtered.acts:
                found.append(filtered)
            if filtered.is_blocked:
                break
        return found

    async def tell(self, filtered: Filtered, direction: Direction) -> None:
        """Writes to the audit log what was found in a text, and raises the alarms for canaries."""
        if not filtered.acts:
            return
        events = [FilterActed(direction, act.filter, act.action, act.what, act.count) for act in filtered.acts]
        alarms = [CanaryAlert(act.what, direction) for act in filtered.acts if act.filter == CANARIES]
        await self._trail.write(*events, *(CanarySeen(alarm.canary, alarm.where) for alarm in alarms))
        for alarm in alarms:
            if self._on_alarm is not None:
                self._on_alarm(alarm)

    async def _recorded(self, filtered: Filtered, direction: Direction) -> Filtered:
        await self.tell(filtered, direction)
        return filtered

    def sift(self, text: str) -> Filtered:
        """Filters a text, and records nothing."""
        return self._cut(self._filter(self._make_visible(text), _EVERYTHING))

    def _make_visible(self, text: str, action: str = "strip") -> Filtered:
        visible = make_visible(text) if self.removes_hidden else text
        return Filtered(visible, () if visible == text else (hidden_characters(len(text) - len(visible), action),))

    def _filter(self, found: Filtered, done: Mapping[Reaction, Reaction]) -> Filtered:
        """`done`: what is done in place of what the policy says; a reaction that is not there is left for later."""
        text, acts = found.text, list(found.acts)
        for name, wanted, find in self._stages if text else ():
            reaction = done.get(wanted)
            spans = [] if reaction is None else list(find(text))
            if reaction is None or not spans:
                continue
            acts += [Act(name, reaction, what, count) for what, count in Counter(span.what for span in spans).items()]
            if reaction == "block":
                return Filtered(_withheld(name, spans), tuple(acts))
            if reaction == "strip":
                text = replace_spans(text, [_unnamed(span) if name == CANARIES else span for span in spans])
        return Filtered(text, tuple(acts))

    def _cut(self, found: Filtered) -> Filtered:
        beyond = len(found.text) - self._rules.size
        if found.is_blocked or beyond <= 0:
            return found
        cut = Act("size", "strip", "characters beyond the limit", beyond)
        return Filtered(head_and_tail(found.text, self._rules.size), (*found.acts, cut))

    def spans(self, text: str) -> Iterator[TextSpan]:
        """Whatever would be taken out of this text, or block it."""
        for _, reaction, find in self._stages:
            if reaction in ("strip", "block"):
                yield from find(text)

    @cached_property
    def _stages(self) -> tuple[tuple[str, Reaction, Find], ...]:
        """Those that are not off. Made once: every text to and from a model goes through them."""
        rules, policy = self._rules, self._policy
        stages: list[tuple[str, Reaction, Find]] = [
            (CANARIES, rules.on_canary, partial(_find_known, self.canaries)),
            ("secrets", rules.secrets, partial(_find_known, self._secrets)),
            ("tokens", rules.tokens, find_tokens),
            ("host_paths", rules.host_paths, lambda text: mentions.find_host_paths(text, policy)),
            ("credentials", rules.credentials, lambda text: mentions.find_credentials(text, policy)),
            ("network", rules.network, lambda text: mentions.find_addresses(text, policy)),
        ]
        return tuple(stage for stage in stages if stage[1] != "off")


def hidden_characters(count: int, action: str = "strip") -> Act:
    return Act("invisible", action, "hidden characters", max(1, count))


def _withheld(stage: str, spans: Iterable[TextSpan]) -> str:
    kinds = "what must not leave" if stage == CANARIES else ", ".join(dict.fromkeys(span.what for span in spans))
    return f"[withheld by policy: the text holds {kinds}]"


def _find_known(known: tuple[SecretValue, ...], text: str) -> Iterator[TextSpan]:
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
