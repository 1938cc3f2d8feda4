"""Source that is sent to the sandbox: tools, variables, and the way back for a final answer."""

from __future__ import annotations

import json
from collections.abc import Mapping

from smolagents import Tool  # pyright: ignore[reportMissingTypeStubs]
from smolagents.serialization import SafeSerializer  # pyright: ignore[reportMissingTypeStubs]
from smolagents.tools import get_tools_definition_code  # pyright: ignore[reportMissingTypeStubs]

from fumehood.errors import UsageError

_FINAL_ANSWER = """
def _answering(given, mark):
    class FinalAnswer(BaseException):
        pass

    def final_answer(*args, **kwargs):
        import json, sys
        answer = given(*args, **kwargs)
        try:
            text = json.dumps(answer)
        except (TypeError, ValueError):
            text = json.dumps(str(answer))
        sys.stdout.write(mark + text)
        sys.stdout.flush()
        raise FinalAnswer

    return final_answer
final_answer = _answering(final_answer, {mark!r})
del _answering
"""


def tools_source(tools: Mapping[str, object], mark: str) -> str:
    """The tools themselves run in the sandbox: what they may do is what the policy allows."""
    own: dict[str, Tool] = {}
    for name, tool in tools.items():
        if not isinstance(tool, Tool):
            kind = type(tool).__name__
            raise UsageError(f"{name!r} is a {kind} and cannot run in a sandbox; give the agent tools that can")
        own[name] = tool
    source = get_tools_definition_code(own)
    return source + _FINAL_ANSWER.replace("{mark!r}", repr(mark)) if "final_answer" in own else source


def variables_source(variables: Mapping[str, object]) -> str:
    """As data, never as pickles: SerializationError for what cannot be told so."""
    data = SafeSerializer.dumps(dict(variables), allow_pickle=False)
    return f"{SafeSerializer.get_deserializer_code(False)}\nglobals().update(_deserialize({data!r}))\n"


def final_answer(output: str, mark: str) -> tuple[str, bool, object]:
    """What was printed before, whether there is an answer, and the answer: plain data, whoever it comes from."""
    printed, found, text = output.partition(mark)
    if not found:
        return output, False, None
    try:
        return printed, True, json.loads(text)
    except (ValueError, RecursionError):
        return printed, True, text
