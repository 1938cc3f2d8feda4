"""A model by one string.

openai:gpt-5  anthropic:claude-sonnet-4-5  ...       whatever pydantic-ai knows, with the provider's own variables
ollama:qwen3                                         a server on this machine, or where OLLAMA_BASE_URL says
llama-3@http://127.0.0.1:8080/v1                     any server that speaks OpenAI's protocol
scripted:FILE  replay:FILE  record:FILE:MODEL        a script, a recording, and how to make one
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from fumehood.agents.models.interface import Model
from fumehood.agents.models.recordings import RecordingModel, ReplayModel
from fumehood.agents.models.scripted import ScriptedModel
from fumehood.agents.models.wire import MOST_BYTES
from fumehood.errors import UsageError
from fumehood.keywords import known_keywords

if TYPE_CHECKING:
    from pydantic_ai.models import Model as TheirModel
    from pydantic_ai.settings import ModelSettings

KEY_VARIABLE = "FUMEHOOD_MODEL_KEY"
INSTALL = "pip install 'fumehood[agents]'"
_OWN_SERVER = re.compile(r"(?:openai-chat:|openai-compatible:)?(?P<name>[^@]+)@(?P<url>https?://\S+)")
MODEL_VARIABLE = "FUMEHOOD_MODEL"
# The default model, by the key that there is.
_USUAL = {"ANTHROPIC_API_KEY": "anthropic:claude-sonnet-5", "OPENAI_API_KEY": "openai:gpt-5-mini"}
_OLLAMA = "http://localhost:11434/v1"


@known_keywords()
def find_model(
    name: str, *, api_key: str | None = None, settings: ModelSettings | None = None, most_bytes: int = MOST_BYTES
) -> Model:
    """`api_key` is for a server of one's own; by default FUMEHOOD_MODEL_KEY, and never the key of another provider.

    `most_bytes` is how large an answer may be.
    """
    kind, _, rest = name.partition(":")
    match kind:
        case "scripted":
            return ScriptedModel.load(rest)
        case "replay":
            return ReplayModel(rest)
        case "record":
            path, _, recorded = rest.partition(":")
            if not path or not recorded:
                raise UsageError(f"{name!r}: write record:FILE:MODEL, such as record:tape.jsonl:openai:gpt-5")
            return RecordingModel(find_model(recorded, api_key=api_key, settings=settings, most_bytes=most_bytes), path)
        case _:
            return _remote(name, api_key, settings, most_bytes)


def usual_model(variables: Mapping[str, str]) -> str | None:
    """$FUMEHOOD_MODEL, else one of a provider that there is a key for."""
    if chosen := variables.get(MODEL_VARIABLE):
        return chosen
    return next((model for key, model in _USUAL.items() if variables.get(key)), None)


def _remote(name: str, api_key: str | None, settings: ModelSettings | None, most_bytes: int) -> Model:
    try:
        from pydantic_ai.exceptions import UserError

        from fumehood.agents.models.remote import RemoteModel
    except ImportError:
        raise UsageError(f"the model {name!r} needs packages that are not installed: {INSTALL}") from None
    try:
        return RemoteModel(_theirs(name, api_key), settings, name=name, most_bytes=most_bytes)
    except (UserError, ValueError) as error:
        raise UsageError(_without_key(name, str(error))) from None
    except ImportError as error:
        raise UsageError(f"the model {name!r} needs a package that is not installed: {error}") from None


def _without_key(name: str, problem: str) -> str:
    """What to set, if that is what is missing; else what pydantic-ai says."""
    if key := re.search(r"\b[A-Z][A-Z0-9_]*(?:_API_KEY|_TOKEN)\b", problem):
        return f"the model {name!r} needs a key: set {key[0]}"
    return f"the model {name!r} cannot be used: {problem}"


def _theirs(name: str, api_key: str | None) -> TheirModel:
    from pydantic_ai.models import infer_model

    if own := _OWN_SERVER.fullmatch(name):
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.profiles.openai import OpenAIModelProfile
        from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

        key = api_key or os.environ.get(KEY_VARIABLE) or None
        # An answer that does not say why it ends has been cut off on the way.
        strict = OpenAIModelProfile(openai_chat_streaming_requires_finish_reason=True)
        provider = OpenAICompatibleProvider("own-server", base_url=own["url"], api_key=key, profile=strict)
        return OpenAIChatModel(own["name"], provider=provider)
    if name.startswith("ollama:") and "OLLAMA_BASE_URL" not in os.environ:
        from pydantic_ai.models.ollama import OllamaModel
        from pydantic_ai.providers.ollama import OllamaProvider

        return OllamaModel(name.removeprefix("ollama:"), provider=OllamaProvider(base_url=_OLLAMA, api_key=api_key))
    return infer_model(name)


def as_model(model: str | Model | TheirModel) -> Model:
    """A model of ours: by its name, as it is, or around one of pydantic-ai's."""
    if isinstance(model, str):
        return find_model(model)
    if hasattr(model, "respond"):
        return model  # pyright: ignore[reportReturnType]  # what has this is one of ours
    from fumehood.agents.models.remote import RemoteModel

    return RemoteModel(model)  # pyright: ignore[reportArgumentType]
