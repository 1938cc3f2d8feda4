"""What happened, as steps that somebody can read: the records of a run or a task, each with what is kept of it."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast
from urllib.parse import quote, urlencode

from fumehood.audit.records import Record
from fumehood.audit.store import Query
from fumehood.audit.words import Shown, summary
from fumehood.errors import FumehoodError
from fumehood.frozen import frozen
from fumehood.policy import Policy, describe
from fumehood.policy.decision import Decision
from fumehood.server.console.pictures import PICTURE_TYPES
from fumehood.server.console.routes import ROOT
from fumehood.server.console.source import RecordReader

_TITLES = {
    "run.requested": "Asked for",
    "run.started": "Started",
    "run.finished": "Ended",
    "run.broke": "Our machinery failed",
    "request.denied": "Denied before it started",
    "egress.denied": "Denied on the way out",
    "egress.allowed": "Let out",
    "artifacts.found": "Made",
    "file.in": "File in",
    "file.out": "File out",
    "canary.seen": "A canary was seen",
    "policy.changed": "Policy changed",
    "approval.asked": "Approval asked for",
    "approval.given": "Approved",
    "approval.denied": "Not approved",
    "approval.edited": "Approved with changes",
    "approval.used": "Approval used up",
    "approval.reviewed": "Reviewed",
    "tool.called": "Tool called",
    "tool.returned": "Tool returned",
    "tool.refused": "Call refused",
    "task.started": "Task",
    "message.received": "Told",
    "task.ended": "Task ended",
    "model.answered": "Model",
    "model.failed": "Model failed",
    "model.compacted": "Conversation shortened",
    "team.turn": "Next speaker",
    "filter.acted": "Filter",
}
_BAD = frozenset(
    {"run.broke", "request.denied", "egress.denied", "canary.seen", "tool.refused", "model.failed", "approval.denied"}
)
_CONTENTS = ("code", "arguments", "stdin", "stdout", "stderr", "task", "answer", "text")
_PLAIN = "text/plain"
_LISTS = ("artifacts", "displays")
_SAID_ELSEWHERE = frozenset({"task.started"})
"""What is kept of a task is what its agent was told."""
_MOST_ON_PAGE = 2_000_000
"""Characters of code, output and texts."""
_HIDDEN = frozenset({*_CONTENTS, *_LISTS, "reason", "rule", "policy", "enforcement", "status", "cause"})


@frozen
class Block:
    """Something that the log keeps whole, or would if the policy said so."""

    label: str
    text: str | None
    """None if the log has a digest alone."""
    language: str
    size: int
    sha256: str
    is_left_out: bool = False
    """The log has it, and the page is long enough."""


@frozen
class Figure:
    """A picture that the log keeps: a run displayed it, or left it as a file."""

    label: str
    stored: str
    """Its digest in the log, by which `pages.run` finds and checks it."""
    size: int


@frozen
class StoryStep:
    seq: int
    time: str
    kind: str
    title: str
    words: str
    tone: str
    blocks: tuple[Block, ...]
    facts: tuple[tuple[str, str], ...]
    reason: str
    rule: str
    change: str
    """The smallest change of the policy that would allow what was denied."""
    proposal: str
    """The address of a page that proposes this change, for those who may make it."""
    artifacts: tuple[Mapping[str, Any], ...]
    figures: tuple[Figure, ...]
    other_types: tuple[str, ...]
    """Media types of what was displayed that are not shown: they could hold scripts, or are not known here."""
    run: str
    who: str


class StoryTeller:
    """Of one log. The policies of sandboxes are read once."""

    def __init__(self, log: RecordReader, changeable: Container[str] = ()) -> None:
        """Denials under a policy that is `changeable`, by name, lead to its change."""
        self._log, self._changeable = log, changeable
        self._policies: dict[str, Policy | None] = {}

    def steps(self, records: Iterable[Record]) -> list[StoryStep]:
        """Of one page: of texts no more than it can bear, the first ones first."""
        found: list[StoryStep] = []
        room = _MOST_ON_PAGE
        for record in records:
            step = self.step(record)
            room -= sum(len(block.text or "") for block in step.blocks)
            if room < 0:
                left_out = (replace(block, text=None, is_left_out=block.text is not None) for block in step.blocks)
                step = replace(step, blocks=tuple(left_out))
            found.append(step)
        return found

    def step(self, record: Record) -> StoryStep:
        shown = Shown.of(record)
        data, decision = shown.data, self.decision(record)
        return StoryStep(
            seq=record.seq,
            time=record.time,
            kind=shown.kind,
            title=_TITLES.get(shown.kind, shown.kind),
            words=summary(shown),
            tone=_tone(shown),
            blocks=tuple(self._blocks(record)),
            facts=tuple((name, _told(value)) for name, value in data.items() if name not in _HIDDEN),
            reason=str(data.get("reason", "")),
            rule=str(data.get("rule") or decision.rule),
            change=decision.fix,
            proposal=self._proposal(record, decision),
            artifacts=_listed(data, "artifacts"),
            figures=tuple(figures_of(data)),
            other_types=tuple(_other_types(data)),
            run=record.run_id or str(data.get("run", "")),
            who=shown.who,
        )

    def decision(self, record: Record) -> Decision[str]:
        """What the policy of its sandbox says to what was tried, with the smallest change that would allow it."""
        what = str(record.data.get("what", ""))
        policy = self.policy_of(record.sandbox_id) if record.kind == "egress.denied" else None
        if policy is not None:
            from fumehood.policy.decisions import Judge, parse_attempt

            # A name that could not be looked up was to be connected to.
            looked_up = f"{what.replace('dns ', 'connect ', 1)}:443"
            for text in (what, f"{record.data.get('attempt')} {what}", looked_up):
                with suppress(FumehoodError):
                    attempt = parse_attempt(text)
                    return Judge(policy).decide(attempt.kind, attempt.target)
        return Decision(what, False)

    def _proposal(self, record: Record, decision: Decision[str]) -> str:
        policy = self.policy_of(record.sandbox_id) if decision.fix else None
        if policy is None or policy.name is None or policy.name not in self._changeable:
            return ""
        return f"{ROOT}/policies/{quote(policy.name, safe='')}/change?{urlencode({'attempt': decision.attempt})}"

    def policy_of(self, sandbox: str | None) -> Policy | None:
        """As it was when the sandbox opened, or as it was changed to since."""
        if sandbox is None:
            return None
        if sandbox not in self._policies:
            self._policies[sandbox] = self._read_policy(sandbox)
        return self._policies[sandbox]

    def _read_policy(self, sandbox: str) -> Policy | None:
        found: Policy | None = None
        for record in self._log.find(Query(sandbox_id=sandbox)):
            if record.kind not in ("sandbox.opened", "policy.changed"):
                continue
            stored = record.data.get("policy")
            text = self._log.attachment(str(stored.get("stored"))) if isinstance(stored, dict) else None  # pyright: ignore[reportUnknownMemberType,reportUnknownArgumentType]
            name = record.data.get("policy_name") or (found.name if found else None)
            found = _policy(text, name) or found
        return found

    def _blocks(self, record: Record) -> Sequence[Block]:
        found: list[Block] = []
        data = record.data
        for name in _CONTENTS:
            match data.get(name):
                case {"sha256": str(digest), "size": int(size), **rest}:
                    if record.kind in _SAID_ELSEWHERE or not size:
                        continue
                    language = str(data.get("language", "")) if name == "code" else ""
                    found.append(Block(name, self._text(rest.get("stored")), language, size, digest))
                case _:
                    continue
        return [*found, *self._values(data)]

    def _values(self, data: Mapping[str, Any]) -> Iterator[Block]:
        """Values that a session displayed as text, and not as anything else that is shown."""
        for shown in _displays(data).values():
            content = shown.get(_PLAIN)
            if isinstance(content, dict) and not PICTURE_TYPES & shown.keys():
                about = cast("dict[str, Any]", content)
                text = self._text(about.get("stored"))
                yield Block("value", text, "", _whole_number(about.get("size")), str(about.get("sha256")))

    def _text(self, stored: object) -> str | None:
        data = self._log.attachment(stored) if isinstance(stored, str) else None
        return None if data is None else data.decode("utf-8", "backslashreplace")


def _whole_number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _policy(text: bytes | None, name: object) -> Policy | None:
    """None of what is not one any more, or not known to this version."""
    try:
        return None if text is None else Policy.model_validate({**json.loads(text), "name": name})
    except (ValueError, TypeError):
        return None


def _tone(shown: Shown) -> str:
    if shown.kind in ("run.finished", "tool.returned"):
        return "good" if shown.data.get("status") == "success" else "bad"
    if shown.kind in _BAD:
        return "bad"
    return "good" if shown.kind in ("approval.given", "egress.allowed") else ""


def _told(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, cast("list[object]", value)))
    return str(value)


def _listed(data: Mapping[str, Any], name: str) -> tuple[Mapping[str, Any], ...]:
    listed = data.get(name)
    if not isinstance(listed, list):
        return ()
    return tuple(cast("Mapping[str, Any]", each) for each in cast("list[object]", listed) if isinstance(each, dict))


def figures_of(data: Mapping[str, Any]) -> Iterator[Figure]:
    """Whatever a record says of them: that one is a picture is found out when somebody wants to see it."""
    for number, shown in _displays(data).items():
        for media_type in PICTURE_TYPES & shown.keys():
            yield from _figure(f"display {number}", shown[media_type])
    for each in _listed(data, "artifacts"):
        yield from _figure(str(each.get("path")), each.get("content"))


def _figure(label: str, content: object) -> Iterator[Figure]:
    match content:
        case {"stored": str(stored), "size": int(size)}:
            yield Figure(label, stored, size)
        case _:
            return


def _displays(data: Mapping[str, Any]) -> dict[str, dict[str, object]]:
    """Number of the display -> media type -> content."""
    found: dict[str, dict[str, object]] = {}
    for each in _listed(data, "displays"):
        found.setdefault(str(each.get("display")), {})[str(each.get("type"))] = each.get("content")
    return found


def _other_types(data: Mapping[str, Any]) -> Iterator[str]:
    for shown in _displays(data).values():
        yield from sorted(shown.keys() - PICTURE_TYPES - {_PLAIN})


def policy_lines(policy: Policy | None) -> list[str]:
    return describe(policy) if policy is not None else []
