"""Source that is sent to the sandbox: tools, variables, and the way back for a final answer."""

from __future__ import annotations

import inspect
from collections.abc import Mapping

from smolagents import Tool, serialization  # pyright: ignore[reportMissingTypeStubs]
from smolagents.serialization import SafeSerializer  # pyright: ignore[reportMissingTypeStubs]
from smolagents.tools import get_tools_definition_code  # pyright: ignore[reportMissingTypeStubs]

from fumehood.errors import UsageError
from fumehood.guest.contract.bundle import MAX_DISPLAY_BYTES

# An answer is a display of a media type that only this executor knows: nothing that is printed joins it or passes for
# one. The serializer's module needs nothing but the standard library, and lives outside of the agent's namespace.
_FINAL_ANSWER = """
def _answering(given, display, media_type, serializer_source, most_bytes):
    class FinalAnswer(BaseException):
        pass

    serializer = {"__name__": "serialization"}
    exec(serializer_source, serializer)
    dumps, refusal = serializer["SafeSerializer"].dumps, serializer["SerializationError"]

    def final_answer(*args, **kwargs):
        answer = given(*args, **kwargs)
        try:
            text = dumps(answer)
        except (refusal, TypeError, ValueError):
            text = dumps(str(answer))
        if len(text) > most_bytes:
            raise ValueError(f"the final answer has {len(text)} bytes, more than {most_bytes}; write it to a file")
        display({media_type: text}, raw=True)
        raise FinalAnswer

    return final_answer
"""


def tools_source(tools: Mapping[str, object], media_type: str) -> str:
    """The tools themselves run in the sandbox: what they may do is what the policy allows."""
    own: dict[str, Tool] = {}
    for name, tool in tools.items():
        if not isinstance(tool, Tool):
            kind = type(tool).__name__
            raise UsageError(f"{name!r} is a {kind} and cannot run in a sandbox; give the agent tools that can")
        own[name] = tool
    source = get_tools_definition_code(own)
    return source + _final_answer_source(media_type) if "final_answer" in own else source


def variables_source(variables: Mapping[str, object]) -> str:
    """Source that sets variables from data, never from pickles; raises SerializationError for other values."""
    data = SafeSerializer.dumps(dict(variables), allow_pickle=False)
    return f"{SafeSerializer.get_deserializer_code(False)}\nglobals().update(_deserialize({data!r}))\n"


def _final_answer_source(media_type: str) -> str:
    serializer = inspect.getsource(serialization)
    arguments = f"final_answer, display, {media_type!r}, {serializer!r}, {MAX_DISPLAY_BYTES}"
    return f"{_FINAL_ANSWER}\nfinal_answer = _answering({arguments})\ndel _answering\n"
