"""OpenTelemetry traces of a server: a span for each request, opening and run. Off unless a collector is named.

Spans go to a queue of bounded length that a thread empties; while the collector is away they are dropped, and nothing
else happens. Requests that carry `traceparent` continue that trace, here and in the records of their runs, also while
no spans are made.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, Field
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fumehood import __version__
from fumehood.audit.spans import end_attributes, otlp_exporter, parent_context
from fumehood.audit.trace_context import HEADER, check_trace, current_trace, within_trace
from fumehood.errors import UsageError
from fumehood.policy.section import Section, Text
from fumehood.results import RunResult
from fumehood.server.http_call import check_url

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span

_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_EXPORT_SECONDS = 5.0
_GOODBYE_SECONDS = 5.0
Attributes = dict[str, str | int | bool]


class TraceSettings(Section):
    endpoint: Annotated[Text, AfterValidator(check_url)] | None = Field(
        default=None,
        description="Where a collector takes OTLP over HTTP, with its path; without it, what OTEL_* variables say.",
    )


class Tracing:
    """Without a provider it makes no spans."""

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self._provider = provider
        self._tracer = None if provider is None else provider.get_tracer("fumehood.server", __version__)

    @classmethod
    def open(cls, settings: TraceSettings | None) -> Tracing:
        """UsageError if the settings ask for traces and OpenTelemetry is not installed."""
        if settings is None and not any(os.environ.get(name) for name in _VARIABLES):
            return cls()
        try:
            return cls(_provider(settings.endpoint if settings else None))
        except ImportError as error:
            raise UsageError(f"traces need OpenTelemetry: pip install 'fumehood[otel]' ({error})") from error

    def close(self) -> None:
        """Sends what waits, unless the collector does not take it in time."""
        if self._provider is not None:
            last = threading.Thread(target=self._provider.shutdown, daemon=True)
            last.start()
            last.join(_GOODBYE_SECONDS)

    @contextmanager
    def request(self, parent: str | None) -> Iterator[Span | None]:
        """The block is a request of HTTP, whose name and status become known in it."""
        if self._tracer is None:
            with within_trace(parent):
                yield None
            return
        from opentelemetry.trace import SpanKind

        with (
            self._tracer.start_as_current_span("request", parent_context(parent), kind=SpanKind.SERVER) as span,
            within_trace(_written(span)),
        ):
            yield span

    @contextmanager
    def step(self, name: str, **attributes: str) -> Iterator[None]:
        """The block is a part of the work that the current trace is about."""
        if self._tracer is None:
            yield
            return
        named: Attributes = {f"fumehood.{key}": value for key, value in attributes.items()}
        with (
            self._tracer.start_as_current_span(name, parent_context(current_trace()), attributes=named) as span,
            within_trace(_written(span)),
        ):
            yield

    def run_ended(self, tenant: str, run_id: str, result: RunResult | None, seconds: float) -> None:
        if self._tracer is None:
            return
        from opentelemetry.trace import Status, StatusCode

        end = time.time_ns()
        attributes: Attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.call.id": run_id,
            "fumehood.tenant": tenant,
            **end_attributes(_ending(result)),
        }
        parent, begin = parent_context(current_trace()), end - int(seconds * 1e9)
        span = self._tracer.start_span("execute_tool", parent, attributes=attributes, start_time=begin)
        if result is None or result.status != "success":
            span.set_status(Status(StatusCode.ERROR))
        span.end(end)


def _ending(result: RunResult | None) -> dict[str, Any]:
    if result is None:
        return {"status": "cancelled", "cause": "cancelled"}
    return {
        "status": str(result.status),
        "cause": str(result.cause),
        "exit_code": result.exit_code,
        "cpu_us": round(result.cpu_ms * 1000),
        "peak_memory_bytes": result.peak_memory_bytes,
    }


def _provider(endpoint: str | None) -> TracerProvider:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    # It says with each batch that a collector is away, which is no trouble of this server's.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    name = os.environ.get("OTEL_SERVICE_NAME", "fumehood")
    provider = TracerProvider(
        resource=Resource.create({"service.name": name, "service.version": __version__}), shutdown_on_exit=False
    )
    provider.add_span_processor(BatchSpanProcessor(otlp_exporter(endpoint, _EXPORT_SECONDS)))
    return provider


def _written(span: Span) -> str:
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


class TracedRequests:
    """Requests continue the trace that their client names. The channel's calls belong to that of its first request."""

    def __init__(self, inner: ASGIApp, tracing: Callable[[], Tracing]) -> None:
        self._inner, self._tracing = inner, tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._inner(scope, receive, send)
            return
        sent = Headers(scope=scope).getlist(HEADER)
        parent = check_trace(sent[0]) if len(sent) == 1 else None
        if scope["type"] == "websocket":
            with within_trace(parent):
                await self._inner(scope, receive, send)
            return
        with self._tracing().request(parent) as span:
            await self._inner(scope, receive, send if span is None else _Described(scope, send, span).send)


class _Described:
    """Writes into the span what is known of the request when it is answered."""

    def __init__(self, scope: Scope, send: Send, span: Span) -> None:
        self._scope, self._send, self._span = scope, send, span

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._describe(message["status"])
        await self._send(message)

    def _describe(self, status: int) -> None:
        from opentelemetry.trace import Status, StatusCode

        method, route = self._scope["method"], getattr(self._scope.get("route"), "path", None)
        self._span.update_name(f"{method} {route}" if route else method)
        principal = self._scope.get("state", {}).get("principal")
        known: Attributes = {"http.request.method": method, "http.response.status_code": status}
        known |= {"http.route": route} if route else {}
        known |= {"fumehood.tenant": principal.tenant, "enduser.id": principal.name} if principal else {}
        self._span.set_attributes(known)
        if status >= 500:
            self._span.set_status(Status(StatusCode.ERROR))


OFF = Tracing()
