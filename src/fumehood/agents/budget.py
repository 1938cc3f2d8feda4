"""How much a task may use, and how much it has used."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Literal

from fumehood.errors import UsageError
from fumehood.keywords import known_keywords
from fumehood.policy import read_seconds
from fumehood.policy.arguments import Seconds

Limit = Literal["turns", "tokens", "cost", "seconds", "tool_calls"]


@dataclass(frozen=True, slots=True, init=False)
class Budget:
    """Limits of a task; None is no limit.

    `seconds` also takes a text, such as "2m". A limit on `tokens` or `cost` ends a task whose model does not report
    what it used.
    """

    turns: int | None = 50
    """Requests to the model."""
    tokens: int | None = None
    """Read and written together."""
    cost: float | None = None
    """The cost in US dollars, by the prices in pydantic-ai."""
    seconds: float | None = None
    tool_calls: int | None = 200

    @known_keywords()
    def __init__(
        self,
        turns: int | None = 50,
        tokens: int | None = None,
        cost: float | None = None,
        seconds: Seconds | None = None,
        tool_calls: int | None = 200,
    ) -> None:
        limit = read_seconds(seconds, "the budget's seconds") if isinstance(seconds, str) else seconds
        given = {"turns": turns, "tokens": tokens, "cost": cost, "seconds": limit, "tool_calls": tool_calls}
        for name, value in given.items():
            object.__setattr__(self, name, value)
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, str):
                raise UsageError(f"the budget's {each.name} must be a number, or None for no limit; it is {value!r}")
            if value is not None and (isinstance(value, bool) or not value > 0):
                raise UsageError(f"the budget's {each.name} must be more than 0, or None for no limit; it is {value!r}")


@dataclass(frozen=True, slots=True)
class Usage:
    turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    seconds: float = 0.0
    tool_calls: int = 0
    unmeasured: int = 0
    """Turns of which the model did not say how many tokens they took."""
    unpriced: int = 0
    """Turns whose price is not known."""

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        # Written out: it is counted several times for each call.
        return Usage(
            self.turns + other.turns,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cost + other.cost,
            self.seconds + other.seconds,
            self.tool_calls + other.tool_calls,
            self.unmeasured + other.unmeasured,
            self.unpriced + other.unpriced,
        )

    def to_dict(self) -> dict[str, int | float]:
        return {each.name: getattr(self, each.name) for each in fields(self)}


class UsageMeter:
    """Counts what a task uses, against its own budget and that of the team it belongs to."""

    def __init__(
        self,
        budget: Budget,
        *,
        before: Usage | None = None,
        parent: UsageMeter | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`before` is what was used already by the same task, when it goes on after a pause."""
        self._budget, self._before, self._parent, self._clock = budget, before or Usage(), parent, clock
        self._used = Usage()
        self._started = clock()

    @property
    def usage(self) -> Usage:
        """All of the task's."""
        return self._before + self._used + Usage(seconds=self._clock() - self._started)

    def add(self, used: Usage) -> None:
        self._used += used
        if self._parent is not None:
            self._parent.add(used)

    def seconds_left(self) -> float | None:
        limits = [] if self._budget.seconds is None else [max(0.0, self._budget.seconds - self.usage.seconds)]
        above = self._parent.seconds_left() if self._parent is not None else None
        return min([*limits, *([] if above is None else [above])], default=None)

    def spent(self, *, next_turn: bool = False, next_call: bool = False) -> tuple[Limit, str] | None:
        """The limit that is reached, or would be passed by another turn or call, and a sentence on it."""
        found = self._spent(next_turn=next_turn, next_call=next_call)
        if found is None and self._parent is not None:
            return self._parent.spent(next_turn=next_turn, next_call=next_call)
        return found

    def _spent(self, *, next_turn: bool, next_call: bool) -> tuple[Limit, str] | None:
        budget, usage = self._budget, self.usage
        if budget.seconds is not None and usage.seconds >= budget.seconds:
            return "seconds", f"it may take {budget.seconds:g} seconds"
        if budget.turns is not None and next_turn and usage.turns >= budget.turns:
            return "turns", f"it may ask the model {budget.turns} times"
        if budget.tool_calls is not None and next_call and usage.tool_calls >= budget.tool_calls:
            return "tool_calls", f"it may call tools {budget.tool_calls} times"
        if budget.tokens is not None:
            if usage.unmeasured:
                return "tokens", "there is a limit on tokens, and the model does not say how many it used"
            if usage.tokens >= budget.tokens:
                return "tokens", f"it may use {budget.tokens} tokens and has used {usage.tokens}"
        if budget.cost is not None:
            if usage.unpriced:
                return "cost", "there is a limit on the cost, and the price of this model is not known"
            if usage.cost >= budget.cost:
                return "cost", f"it may cost {budget.cost:g} dollars and has cost {usage.cost:.4f}"
        return None
