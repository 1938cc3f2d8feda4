"""Agents and teams: models that decide, tools that are carried out in sandboxes, and an end to every task.

    agent = AssistantAgent("coder", "openai:gpt-5", tools=[PYTHON], policy=policy)
    result = await agent.run("What are the first ten Fibonacci numbers?")
    result.text, result.stop_reason, result.usage

Owns tasks: their conversation (`messages`), budget, events, stop reasons and state. What may be done is for the policy,
the toolbox and the gate below. Must not know any provider of models: `models` does, and imports pydantic-ai only when
a model of that kind is used.
"""

from fumehood.agents.agent import AssistantAgent
from fumehood.agents.budget import Budget, Usage
from fumehood.agents.events import TaskEnded, TaskEvent
from fumehood.agents.memory import Compaction, CompactionInput, OldestFirst
from fumehood.agents.messages import AssistantMessage, CallRequest, ChatMessage, ToolMessage, UserMessage
from fumehood.agents.messaging_tools import PUBLISH, SEND_MESSAGE, Resume, TaskDone, TaskRequest
from fumehood.agents.models import Model, ModelFailure, RecordingModel, ReplayModel, ScriptedModel, call, find_model
from fumehood.agents.result import Stop, StopReason, TaskResult
from fumehood.agents.reviewer import ModelReviewer
from fumehood.agents.runtime_agent import TaskAgent, task_agent
from fumehood.agents.tool_runner import PAUSE, ApprovalSettings

__all__ = [
    "PAUSE",
    "PUBLISH",
    "SEND_MESSAGE",
    "ApprovalSettings",
    "AssistantAgent",
    "AssistantMessage",
    "Budget",
    "CallRequest",
    "ChatMessage",
    "Compaction",
    "CompactionInput",
    "Model",
    "ModelFailure",
    "ModelReviewer",
    "OldestFirst",
    "RecordingModel",
    "ReplayModel",
    "Resume",
    "ScriptedModel",
    "Stop",
    "StopReason",
    "TaskAgent",
    "TaskDone",
    "TaskEnded",
    "TaskEvent",
    "TaskRequest",
    "TaskResult",
    "ToolMessage",
    "Usage",
    "UserMessage",
    "call",
    "find_model",
    "task_agent",
]
