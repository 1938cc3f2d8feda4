"""Teams: several agents at one task.

team        what all teams have in common: turns, one conversation, nesting, state
orders      who speaks next: in turn, chosen by a model or a function, handed over
pair        a code writer and an executor
conditions  when it is enough: combined with | and &
"""

from fumehood.agents.teams.conditions import (
    External,
    HandedTo,
    MaxMessages,
    Spent,
    TaskProgress,
    TerminationCondition,
    TextMention,
    Timeout,
    ToolUsed,
)
from fumehood.agents.teams.orders import HandoffTeam, RoundRobinTeam, SelectorTeam
from fumehood.agents.teams.pair import CodingPair, code_executor
from fumehood.agents.teams.team import Team

__all__ = [
    "CodingPair",
    "External",
    "HandedTo",
    "HandoffTeam",
    "MaxMessages",
    "RoundRobinTeam",
    "SelectorTeam",
    "Spent",
    "TaskProgress",
    "Team",
    "TerminationCondition",
    "TextMention",
    "Timeout",
    "ToolUsed",
    "code_executor",
]
