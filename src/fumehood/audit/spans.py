"""Runs as OpenTelemetry spans, in the words of the conventions for generative AI: a run is the execution of a tool.

https://opentelemetry.io/docs/specs/semconv/gen-ai/
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from fumehood.audit.records import Record
from fumehood.audit.trace_context import HEADER, check_trace
from fumehood.errors import AuditError, UsageError

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter

_BATCH = 512
_ENDS = {"run.finished", "run.broke"}
_INSTALL = "spans need OpenTelemetry's SDK and exporter: pip install 'fumehood[otel]'"


@dataclass(slots=True)
class Span:
    """One run. Times are nanoseconds since 1970."""

    name: str
    start_ns: int
    end_ns: int
    attributes: dict[str, str | int | bool]
    failure: str | None = None
    parent: str | None = None
    """The trace and the span that asked for it, as W3C Trace Context writes them."""
    events: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])


def spans(records: Iterable[Record]) -> Iterator[Span]:
    """One for each run that has ended, as it ends. What is not about a run has no span."""
    open_spans: dict[str, Span] = {}
    for record in records:
        run_id = record.run_id
        if run_id is None:
            continue
        if record.kind == "run.requested":
            open_spans[run_id] = _begin(record, run_id)
        elif run_id in open_spans and record.kind in _ENDS:
            yield _end(open_spans.pop(run_id), record)
        elif run_id in open_spans:
            open_spans[run_id].events.append((record.kind, _nanoseconds(record.time)))


def send(records: Iterable[Record], exporter: SpanExporter | None = None) -> int:
    """Sends spans to the collector that the environment names; returns their number, raises AuditError on a refusal."""
    try:
        from opentelemetry.sdk.trace.export import SpanExportResult

        chosen, sent = exporter or otlp_exporter(), 0
        finished = _finished_spans(records)
        try:
            while batch := tuple(islice(finished, _BATCH)):
                if chosen.export(batch) is not SpanExportResult.SUCCESS:
                    raise _not_taken(sent)
                sent += len(batch)
        finally:
            chosen.shutdown()
    except ImportError as error:
        raise UsageError(f"{_INSTALL} ({error})") from error
    return sent


def _finished_spans(records: Iterable[Record]) -> Iterator[ReadableSpan]:
    """Finished spans of the SDK. Its own processors silently drop spans that a collector does not take."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    from opentelemetry.sdk.trace.sampling import ALWAYS_ON
    from opentelemetry.trace import Status, StatusCode

    resource = Resource.create({"service.name": "fumehood"})
    provider = TracerProvider(ALWAYS_ON, resource, shutdown_on_exit=False)
    finished = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(finished))
    tracer = provider.get_tracer("fumehood.audit")
    for each in spans(records):
        span = tracer.start_span(
            each.name, parent_context(each.parent), start_time=each.start_ns, attributes=each.attributes
        )
        for name, moment in each.events:
            span.add_event(name, timestamp=moment)
        if each.failure is not None:
            span.set_status(Status(StatusCode.ERROR, each.failure))
        span.end(each.end_ns)
        yield from finished.get_finished_spans()
        finished.clear()


def _not_taken(sent: int) -> AuditError:
    return AuditError(
        f"the collector did not take the spans; {sent} were sent before. Is there one at the address that "
        "OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT names (by default http://localhost:4318)?"
    )


def otlp_exporter(endpoint: str | None = None, seconds: float | None = None) -> SpanExporter:
    """To the collector at this address, or at the one that the usual variables name."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter(endpoint=endpoint, timeout=seconds)


def parent_context(trace: str | None) -> Context:
    """Never that of the process: a span without a parent begins a trace of its own."""
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract({HEADER: trace} if trace else {}, Context())


def _begin(record: Record, run_id: str) -> Span:
    fields, data = record.parse(), record.data
    tool = str(data.get("command") or data.get("language") or "program")
    attributes: dict[str, str | int | bool] = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": tool,
        "gen_ai.tool.call.id": run_id,
        "gen_ai.tool.type": "function",
        "fumehood.sandbox.id": record.sandbox_id or "",
        "enduser.id": str(fields.get("who", "")),
    }
    if "tenant" in fields:
        attributes["fumehood.tenant"] = str(fields["tenant"])
    if "code" in data:
        attributes["fumehood.code.sha256"] = str(data["code"]["sha256"])
    moment = _nanoseconds(record.time)
    ids = fields.get("ids")
    trace = cast("dict[str, object]", ids).get("trace") if isinstance(ids, dict) else None
    parent = check_trace(trace) if isinstance(trace, str) else None
    return Span(f"execute_tool {tool}", moment, moment, attributes, parent=parent)


def _end(span: Span, record: Record) -> Span:
    data: dict[str, Any] = record.data
    span.end_ns = max(span.start_ns, _nanoseconds(record.time))
    span.attributes |= end_attributes(data)
    if data.get("status") != "success":
        span.failure = str(data.get("detail") or data.get("reason") or data.get("status"))
    return span


def end_attributes(data: Mapping[str, Any]) -> dict[str, str | int | bool]:
    """How a run has ended, by the names that records have for it."""
    names = ("status", "cause", "exit_code", "cpu_us", "peak_memory_bytes")
    found = {f"fumehood.run.{name}": data[name] for name in names if data.get(name) is not None}
    if data.get("status") != "success":
        found["error.type"] = str(data.get("cause") or data.get("error"))
    return found


def _nanoseconds(moment: str) -> int:
    whole = datetime.fromisoformat(moment)
    return int(whole.timestamp()) * 1_000_000_000 + whole.microsecond * 1000
