"""A team: participants that take turns at one task, in one conversation.

Each participant keeps its own memory, tools, policy and sandbox, and reads what the others have said, under their
names. No participant can speak for another one, or gets its tools. A team is a participant itself, so teams can
be nested; others read only what it said last.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import NamedTuple, TypedDict

from fumehood.agents.audit_records import SpeakerChosen
from fumehood.agents.budget import Budget, UsageMeter
from fumehood.agents.messages import UserMessage
from fumehood.agents.model_client import BudgetSpentError
from fumehood.agents.participant import Participant
from fumehood.agents.result import DONE, ENDS_TURN, OutputKind, OutputT_co, Stop, StopReason
from fumehood.agents.sandbox_provider import SandboxProvider
from fumehood.agents.state import TeamState, read_state
from fumehood.agents.task import ParticipantFacts, TaskContext, TurnResult
from fumehood.agents.teams.conditions import TaskProgress, TerminationCondition
from fumehood.audit.trail import Trail
from fumehood.errors import ModelError, UsageError
from fumehood.keywords import known_keywords
from fumehood.sandbox.audit import AuditChoice

_GO_ON = "Go on."


class Choice(NamedTuple):
    """Who speaks next, and why."""

    speaker: str
    why: str


class TeamOptions(TypedDict, total=False):
    """What every team takes."""

    name: str
    description: str
    termination: TerminationCondition | None
    budget: Budget | None
    audit: AuditChoice


class Team(Participant[OutputT_co]):
    """What all teams have in common; children say who speaks next, and may know when the task is done.

    A budget of a participant is for each of its turns, that of the team for the whole task. What happens is recorded in
    the team's log, whatever `audit` its participants were given.
    """

    @known_keywords()
    def __init__(
        self,
        participants: Sequence[Participant[OutputT_co]],
        *,
        name: str = "team",
        description: str = "",
        termination: TerminationCondition | None = None,
        budget: Budget | None = None,
        audit: AuditChoice = None,
    ) -> None:
        super().__init__(name, description, budget, audit)
        self._participants = {each.name: each for each in participants}
        if not participants or len(self._participants) != len(participants) or name in self._participants:
            raise UsageError(f"the participants of {name} must have names of their own, and there must be one at least")
        self._termination = termination
        self._said: list[UserMessage] = []
        self._heard = dict.fromkeys(self._participants, 0)
        self._turn = 0
        self._speaker: str | None = None
        self._is_waiting = False
        self._handed_to: str | None = None
        # Where the task under way begins.
        self._first_said = self._first_message = 0

    @abstractmethod
    async def choose(self, task: TaskContext) -> Choice:
        """Who speaks next, when the task was not handed over."""

    def is_done(self, speaker: str, reply: TurnResult[object]) -> bool:
        """Whether the task is done with this turn."""
        return False

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._participants)

    @property
    def said(self) -> tuple[UserMessage, ...]:
        """The conversation, tasks included: what participants read."""
        return tuple(self._said)

    @property
    def turn(self) -> int:
        """How many turns this task has had."""
        return self._turn

    @property
    def speaker(self) -> str | None:
        """Who spoke last in this task."""
        return self._speaker

    def member(self, name: str) -> Participant[OutputT_co]:
        return self._participants[name]

    def facts(self) -> ParticipantFacts:
        each = [participant.facts() for participant in self._participants.values()]
        models = ", ".join(dict.fromkeys(facts.model for facts in each))
        return ParticipantFacts(models, tuple(dict.fromkeys(tool for facts in each for tool in facts.tools)), None)

    @property
    def missing_output(self) -> OutputKind:
        kinds = {participant.missing_output for participant in self._participants.values()}
        return OutputKind.NONE if OutputKind.NONE in kinds else OutputKind.TEXT

    @asynccontextmanager
    async def at_work(self, trail: Trail, provider: SandboxProvider) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for participant in self._participants.values():
                stack.enter_context(participant.tasks.engaged())
                await stack.enter_async_context(participant.at_work(trail, provider))
            yield

    async def forget_pause(self, trail: Trail) -> None:
        self._is_waiting = False
        for participant in self._participants.values():
            await participant.forget_pause(trail)

    async def reply(self, news: Sequence[UserMessage], task: TaskContext) -> TurnResult[OutputT_co]:
        inside = replace(
            task, trail=task.trail.within(team=self.name), meter=UsageMeter(self._budget, parent=task.meter)
        )
        if news:
            self._take_task(news, task)
        while True:
            speaker, reply = await self._take_turn(inside)
            self._is_waiting = reply.stop.kind is Stop.APPROVAL_PENDING
            if (stop := self._ending(speaker, reply, inside)) is not None:
                return TurnResult(self._last_word(), stop, reply.output)

    def _take_task(self, news: Sequence[UserMessage], task: TaskContext) -> None:
        self._is_waiting, self._turn, self._speaker, self._handed_to = False, 0, None, None
        self._said += news
        self._first_said, self._first_message = len(self._said), len(task.messages)

    async def _take_turn(self, task: TaskContext) -> tuple[str, TurnResult[OutputT_co]]:
        if self._is_waiting and self._speaker is not None:
            speaker, news = self._speaker, []
        else:
            if spent := task.meter.spent(next_turn=True):
                return self.name, self._stopped(StopReason(Stop.BUDGET, spent[1], limit=spent[0]))
            try:
                speaker = await self._next_speaker(task)
            except ModelError as error:  # of a model that was to choose
                return self.name, self._stopped(StopReason.of(error))
            except BudgetSpentError as error:
                return self.name, self._stopped(error.stop)
            news = self._news_for(speaker)
        reply = await self._participants[speaker].reply(news, task)
        if reply.stop.kind is Stop.HANDED_OFF:
            self._say(speaker, reply.stop.detail or reply.said or f"{reply.stop.target} takes over.")
        elif reply.stop.kind in ENDS_TURN:
            self._say(speaker, reply.said)
        self._handed_to = reply.stop.target
        return speaker, reply

    def _stopped(self, stop: StopReason) -> TurnResult[OutputT_co]:
        return TurnResult("", stop, self.missing_output)

    async def _next_speaker(self, task: TaskContext) -> str:
        if self._handed_to is not None:
            choice = Choice(self._handed_to, f"{self._speaker} handed over")
        else:
            choice = await self.choose(task)
        await task.trail.write(SpeakerChosen(self.name, choice.speaker, choice.why))
        self._speaker, self._turn = choice.speaker, self._turn + 1
        return choice.speaker

    def _news_for(self, speaker: str) -> list[UserMessage]:
        """What others have said since. A participant without anything new is asked to go on."""
        unheard = [each for each in self._said[self._heard[speaker] :] if each.source != speaker]
        self._heard[speaker] = len(self._said)
        return unheard or [UserMessage(source=self.name, text=_GO_ON)]

    def _say(self, speaker: str, text: str) -> None:
        if text:
            self._said.append(UserMessage(source=speaker, text=text))

    def _ending(self, speaker: str, reply: TurnResult[object], task: TaskContext) -> StopReason | None:
        if reply.stop.kind not in ENDS_TURN:
            return reply.stop
        if self._termination is not None and (why := self._termination.met(self._progress(task))) is not None:
            return StopReason(Stop.CONDITION, why)
        if reply.stop.kind is Stop.HANDED_OFF and reply.stop.target not in self._participants:
            return reply.stop
        return DONE if self.is_done(speaker, reply) else None

    def _progress(self, task: TaskContext) -> TaskProgress:
        return TaskProgress(self._said[self._first_said :], task.messages[self._first_message :], task.meter.usage)

    def _last_word(self) -> str:
        said = self._said[self._first_said :]
        return said[-1].text if said else ""

    def state(self) -> TeamState:
        return TeamState(
            name=self.name,
            said=tuple(self._said),
            heard=dict(self._heard),
            turn=self._turn,
            speaker=self._speaker,
            is_waiting=self._is_waiting,
            first_said=self._first_said,
            first_message=self._first_message,
            participants={name: each.state() for name, each in self._participants.items()},
            task=self.tasks.paused,
        )

    def load_state(self, data: Mapping[str, object]) -> None:
        """Loads the state of a team of this name, with participants of the same names."""
        self.tasks.refuse_while_busy("load a state before its task begins")
        state = read_state(TeamState, self.name, data)
        names = set(self._participants)
        if set(state.participants) != names or set(state.heard) != names or not {state.speaker} <= {None, *names}:
            raise UsageError(f"the state of {self.name!r} is of a team with other participants than {sorted(names)}")
        for name, each in state.participants.items():
            self._participants[name].load_state(each.model_dump(mode="json"))
        self._said, self._heard, self._turn = list(state.said), dict(state.heard), state.turn
        self._speaker, self._is_waiting, self.tasks.paused = state.speaker, state.is_waiting, state.task
        self._first_said, self._first_message = state.first_said, state.first_message
