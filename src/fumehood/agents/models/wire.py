"""What comes over the wire from a model's server: bounded while it is read, and told apart by its type.

Works on the HTTP client below a model of pydantic-ai, where there is one to be found: the libraries above it read whole
bodies before a limit on their size could be checked.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol, cast

from fumehood.agents.models.interface import ModelFailure
from fumehood.errors import ModelError
from fumehood.policy import format_size

MOST_BYTES = 8 * 1024 * 1024
"""Most bytes of one answer: text, thoughts and calls."""
# Each piece of a streamed answer comes in some hundred bytes of JSON.
_AROUND_EVENTS = 8


class _Stream(Protocol):
    def __aiter__(self) -> AsyncIterator[bytes]: ...

    async def aclose(self) -> None: ...


@dataclass(slots=True)
class Arrival:
    """How the answer to one request came."""

    is_whole: bool = False
    """Whether it came as one JSON document, also when a stream was requested."""


# A model answers several requests at once. Hooks of the client run in the context of the request that they are about.
_arrival: ContextVar[Arrival] = ContextVar("fumehood_arrival")


class Wire:
    def __init__(self, name: str, most_bytes: int) -> None:
        self._name, self.most_bytes = name, most_bytes
        self._client: Any = None

    def attach(self, model: object) -> None:
        """Adds hooks to the client that the model uses now, unless it has them already."""
        client = getattr(getattr(model, "client", None), "_client", None)
        hooks = getattr(client, "event_hooks", None)
        if client is self._client or not isinstance(hooks, dict):
            return
        known = cast("dict[str, list[Any]]", hooks)
        cast("Any", client).event_hooks = {
            "request": [*known.get("request", ()), self._ask_plainly],
            "response": [*known.get("response", ()), self._bound],
        }
        self._client = client

    def expect(self) -> Arrival:
        """Call this before a request, in its own context: what is returned is filled in when the answer arrives."""
        arrival = Arrival()
        _arrival.set(arrival)
        return arrival

    def too_large(self) -> ModelError:
        most = format_size(self.most_bytes)
        return ModelError(
            ModelFailure.TOO_LARGE, f"the answer of the model {self._name} is larger than {most}, and was given up"
        )

    async def _ask_plainly(self, request: Any) -> None:
        """What is compressed can become a thousand times as large after it was counted."""
        request.headers["accept-encoding"] = "identity"

    async def _bound(self, response: Any) -> None:
        headers = response.headers
        _arrival.get(Arrival()).is_whole = headers.get("content-type", "").startswith("application/json")
        if headers.get("content-encoding", "identity") != "identity":
            raise ModelError(
                ModelFailure.MALFORMED, f"the answer of the model {self._name} is compressed, and must not be"
            )
        is_events = headers.get("content-type", "").startswith("text/event-stream")
        response.stream = _bounded_stream(response.stream, self, self.most_bytes * (_AROUND_EVENTS if is_events else 1))


def _bounded_stream(stream: _Stream, wire: Wire, most_bytes: int) -> object:
    # The library that the model was made with wants a child of its own class.
    class Bounded(type(stream)):
        def __init__(self) -> None:
            """Nothing of the parent's: all is passed on."""

        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = line = 0
            async for chunk in stream:
                size += len(chunk)
                end = chunk.rfind(b"\n")
                line = line + len(chunk) if end < 0 else len(chunk) - end - 1
                # A line is what the library above keeps until it is complete.
                if size > most_bytes or line > wire.most_bytes:
                    raise wire.too_large()
                yield chunk

        async def aclose(self) -> None:
            await stream.aclose()

    return Bounded()
