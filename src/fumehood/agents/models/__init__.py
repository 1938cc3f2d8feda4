"""Models: what an agent asks. `interface` says what a model has to be; must not know agents, tools or sandboxes.

names      finds a model by one string
scripted   answers from a script
remote     everything that pydantic-ai reaches; the only module that imports it, and only when it is used
wire       bounds what its server sends
failures   what goes wrong there, by kind
recordings writes down what a model answered, and answers the same without it
"""

from fumehood.agents.models.interface import Model, ModelAnswer, ModelFailure, ModelRequest
from fumehood.agents.models.names import find_model
from fumehood.agents.models.recordings import RecordingModel, ReplayModel
from fumehood.agents.models.scripted import ScriptedModel, call

__all__ = [
    "Model",
    "ModelAnswer",
    "ModelFailure",
    "ModelRequest",
    "RecordingModel",
    "ReplayModel",
    "ScriptedModel",
    "call",
    "find_model",
]
