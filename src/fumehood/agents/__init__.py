"""Agents and teams: models that decide, tools that are carried out in sandboxes, and an end to every task.

    agent = AssistantAgent("coder", "openai:gpt-5", tools=[PYTHON], policy=policy)
    result = await agent.run("What are the first ten Fibonacci numbers?")
    result.text, result.stop_reason, result.usage

Owns tasks: their conversation (`messages`), budget, events, stop reasons and state. What may be done is for the policy,
the toolbox and the gate below. Must not know any provider of models: `models` does, and imports pydantic-ai only when
a model of that kind is used.
"""

from fumehood.agents.agent import AssistantAgent
from fumehood.agents.asking import PAUSE, Asking
from fumehood.agents.budget import Budget, Usage
from fumehood.agents.compaction import Compaction, Conversation, OldestFirst
from fumehood.agents.correspondence import PUBLISH, SEND_MESSAGE, Resume, Task, TaskDone
from fumehood.agents.events import TaskEnded, TaskEvent
from fumehood.agents.messages import AssistantMessage, CallRequest, Message, ToolMessage, UserMessage
from fumehood.agents.models import Failure, Model, RecordingModel, ReplayModel, ScriptedModel, call, find_model
from fumehood.agents.residence import Resident, resident
from fumehood.agents.result import TaskResult
from fumehood.agents.stopping import Stop, StopReason

__all__ = [
    "PAUSE",
    "PUBLISH",
    "SEND_MESSAGE",
    "Asking",
    "AssistantAgent",
    "AssistantMessage",
    "Budget",
    "CallRequest",
    "Compaction",
    "Conversation",
    "Failure",
    "Message",
    "Model",
    "OldestFirst",
    "RecordingModel",
    "ReplayModel",
    "Resident",
    "Resume",
    "ScriptedModel",
    "Stop",
    "StopReason",
    "Task",
    "TaskDone",
    "TaskEnded",
    "TaskEvent",
    "TaskResult",
    "ToolMessage",
    "Usage",
    "UserMessage",
    "call",
    "find_model",
    "resident",
]
