"""Models that fail, as a real server on the loopback makes them: every failure has a kind, and is a stop reason."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import traceback
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from urllib.parse import quote

import anyio
import pytest
from pydantic_ai.models.test import TestModel
from unit.agents.model_server import (
    DONE,
    USAGE,
    Answer,
    Handler,
    ModelServer,
    chunk,
    events,
    failing,
    hanging,
    serving,
    text,
)
from unit.agents.model_server import tool_call as called

from fumehood.agents import AssistantAgent, Budget, ModelFailure, Stop, TaskEnded, ToolMessage, find_model
from fumehood.agents.messages import UserMessage
from fumehood.agents.models.interface import ModelRequest, ThoughtPiece
from fumehood.agents.models.remote import RemoteModel
from fumehood.agents.models.wire import MOST_BYTES
from fumehood.audit import AuditLog, Query
from fumehood.errors import ModelError
from fumehood.tools import PYTHON

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def shared() -> Iterator[ModelServer]:
    with serving() as server:
        yield server


@pytest.fixture
def server(shared: ModelServer) -> ModelServer:
    shared.answers.clear()
    shared.requests.clear()
    shared.headers.clear()
    return shared


def agent(server: ModelServer, *answers: Answer, seconds: float = 30.0, **more: object) -> AssistantAgent:
    server.answers[:] = answers
    model = find_model(server.model, settings={"max_retries": 0, "request_timeout": seconds})
    return AssistantAgent("tester", model, **more)  # type: ignore[arg-type]


FAILURES: list[tuple[str, Answer, ModelFailure]] = [
    ("429", failing(429, "rate_limit_exceeded"), ModelFailure.RATE_LIMITED),
    ("no money", failing(429, "insufficient_quota"), ModelFailure.QUOTA),
    ("500", failing(500), ModelFailure.SERVER),
    ("503", failing(503), ModelFailure.UNAVAILABLE),
    ("401", failing(401, "invalid_api_key"), ModelFailure.AUTHENTICATION),
    ("404", failing(404, "model_not_found"), ModelFailure.NOT_FOUND),
    ("400", failing(400, "invalid_request_error"), ModelFailure.REJECTED),
    ("too long", failing(400, "context_length_exceeded"), ModelFailure.CONTEXT_OVERFLOW),
    ("no JSON", events(b"data: {this is no JSON\n\n", DONE), ModelFailure.MALFORMED),
    ("another shape", events(b'data: {"choices": "none"}\n\n', DONE), ModelFailure.MALFORMED),
    ("a web page", lambda handler: handler.send(200, b"<html>hello</html>", "text/html"), ModelFailure.MALFORMED),
    ("nothing at all", events(USAGE, DONE), ModelFailure.MALFORMED),
    ("an empty answer", events(chunk({"content": ""}), chunk({}, "stop"), USAGE, DONE), ModelFailure.MALFORMED),
    ("broken off", events(chunk({"content": "It is"})), ModelFailure.TRUNCATED),
    (
        "broken off in a call",
        events(chunk({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "python", "arguments": '{"co'}}]})),
        ModelFailure.TRUNCATED,
    ),
    ("out of tokens", events(chunk({"content": "It is"}), chunk({}, "length"), USAGE, DONE), ModelFailure.TRUNCATED),
    ("closed", lambda handler: handler.connection.shutdown(socket.SHUT_RDWR), ModelFailure.CONNECTION),
]


@pytest.mark.parametrize(("answer", "failure"), [each[1:] for each in FAILURES], ids=[each[0] for each in FAILURES])
async def test_a_failure_has_its_kind(server: ModelServer, answer: Answer, failure: ModelFailure) -> None:
    result = await agent(server, answer).run("hello")
    assert (result.stop_reason.kind, result.stop_reason.failure) == (Stop.MODEL_FAILED, failure), result.stop_reason
    assert server.model in result.stop_reason.detail
    assert result.usage.turns == 1


async def test_a_server_without_responses_is_named_the_way_that_it_is_called(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answers[:] = [lambda handler: handler.send(404, b"no such page", "text/plain")]
    monkeypatch.setenv("OPENAI_BASE_URL", server.model.partition("@")[2])
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    result = await AssistantAgent("tester", find_model("openai:own", settings={"max_retries": 0})).run("hello")
    assert result.stop_reason.failure is ModelFailure.NOT_FOUND
    assert result.stop_reason.detail.endswith("name it as own@http://HOST:PORT/v1")


REFUSALS: list[tuple[str, Answer]] = [
    ("refusal", events(chunk({"refusal": "I will not"}), chunk({}, "stop"), USAGE, DONE)),
    ("filter", events(chunk({"content": "We"}), chunk({}, "content_filter"), USAGE, DONE)),
]


@pytest.mark.parametrize("answer", [each[1] for each in REFUSALS], ids=[each[0] for each in REFUSALS])
async def test_a_refusal_is_a_reason_of_its_own(server: ModelServer, answer: Answer) -> None:
    stop = (await agent(server, answer).run("hello")).stop_reason
    assert (stop.kind, stop.failure) == (Stop.REFUSED, ModelFailure.REFUSED)


@pytest.mark.parametrize("answer", [hanging(), hanging(chunk({"content": "It is"}))], ids=["at once", "in the middle"])
async def test_a_model_that_goes_silent_is_given_up(server: ModelServer, answer: Answer) -> None:
    stop = (await agent(server, answer, seconds=0.5).run("hello")).stop_reason
    assert (stop.kind, stop.failure) == (Stop.MODEL_FAILED, ModelFailure.TIMEOUT)


async def test_the_clock_of_the_task_ends_a_silent_model_too(server: ModelServer) -> None:
    stop = (await agent(server, hanging(), budget=Budget(seconds=0.5)).run("hello")).stop_reason
    assert (stop.kind, stop.limit) == (Stop.BUDGET, "seconds")


async def test_a_server_that_is_not_there_is_a_lost_connection() -> None:
    with serving() as server:
        gone = server.model
    model = find_model(gone, settings={"max_retries": 0})
    stop = (await AssistantAgent("tester", model).run("hello")).stop_reason
    assert stop.failure is ModelFailure.CONNECTION


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("pyhton", "{}", "There is no tool 'pyhton'. Did you mean python?"),
        ("python", '{"code": ', "The arguments are not JSON"),
        ("python", "[1]", "The arguments are list, not an object"),
        ("python", '{"code": 1}', "code: Input should be a valid string"),
        ("python", '{"code": "print(6 * 7)", "as": "root"}', "as: Extra inputs are not permitted"),
    ],
)
async def test_a_call_that_makes_no_sense_is_answered_and_the_task_goes_on(
    server: ModelServer, tool: str, arguments: str, words: str
) -> None:
    right = called("python", '{"code": "print(6 * 7)"}', "c2")
    result = await agent(server, called(tool, arguments), right, text("42, ", "of course."), tools=[PYTHON]).run("?")
    first, second = (message for message in result.messages if isinstance(message, ToolMessage))
    assert words in first.text
    assert (first.status, second.text) == ("invalid", "Success.\nstdout:\n42")
    assert (result.text, result.stop_reason.kind) == ("42, of course.", Stop.DONE)
    assert (result.usage.input_tokens, result.usage.output_tokens) == (33, 21)


async def test_a_conversation_that_is_too_long_for_the_model_is_shortened_and_asked_again(
    server: ModelServer, tmp_path: Path
) -> None:
    log = AuditLog.at(tmp_path / "audit")
    code = 'print("x" * 9000)'
    answers = [called("python", json.dumps({"code": code}), f"c{n}") for n in range(6)]
    too_long = failing(400, "context_length_exceeded")
    tester = agent(server, *answers, too_long, text("Done."), tools=[PYTHON], audit=log)
    events = [event async for event in tester.run_stream("?")]
    result = next(event.result for event in events if isinstance(event, TaskEnded))
    assert (result.text, result.usage.turns) == ("Done.", 8)
    before, after = (len(json.dumps(request)) for request in server.requests[-2:])
    assert after < before * 0.6
    (told,) = (event for event in events if event.kind == "compacted")
    assert told.to_dict()["why"] == "overflow"
    (record,) = log.find(Query(kind="model.compacted"))
    assert record.data["why"] == "overflow"
    # Calls and results are together, as servers want them.
    sent = server.requests[-1]["messages"]
    asked = [call["id"] for message in sent for call in message.get("tool_calls") or ()]
    assert asked == [message["tool_call_id"] for message in sent if message["role"] == "tool"]
    assert sent[0] == {"role": "user", "content": "?"}


async def test_a_conversation_that_stays_too_long_is_a_failure(server: ModelServer) -> None:
    stop = (await agent(server, failing(400, "context_length_exceeded")).run("hello")).stop_reason
    assert (stop.failure, len(server.requests)) == (ModelFailure.CONTEXT_OVERFLOW, 1)


async def test_what_is_sent_is_what_was_said(server: ModelServer) -> None:
    """Results go back under the id of their call, and the instructions, tools and the key go where they belong."""
    server.answers[:] = [called("python", '{"code": "print(6 * 7)"}', "c7"), text("42")]
    model = find_model(server.model, api_key="key-of-this-server", settings={"max_retries": 0})
    await AssistantAgent("tester", model, tools=[PYTHON], instructions="Be brief.").run("What is it?")
    first, second = server.requests
    assert [message["role"] for message in first["messages"]] == ["system", "user"]
    assert first["messages"][0]["content"] == "Be brief."
    assert [tool["function"]["name"] for tool in first["tools"]] == ["python"]
    assert "risk" not in str(first["tools"])
    call, result = second["messages"][2:]
    assert (call["tool_calls"][0]["id"], result["tool_call_id"]) == ("c7", "c7")
    assert result["content"] == "Success.\nstdout:\n42"
    assert server.headers[0]["authorization"] == "Bearer key-of-this-server"


async def test_the_key_of_another_provider_is_never_sent(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-openai")
    await agent(server, text("hello")).run("hello")
    assert "key-of-openai" not in str(server.headers)


async def test_a_failure_that_passes_is_tried_again(server: ModelServer) -> None:
    server.answers[:] = [failing(500), failing(429), text("at last")]
    assert (await AssistantAgent("tester", server.model).run("hello")).text == "at last"
    assert len(server.requests) == 3


async def test_a_failure_is_on_record(server: ModelServer, tmp_path: Path) -> None:
    log = AuditLog.at(tmp_path)
    result = await agent(server, failing(500), audit=log).run("hello")
    records = list(log.find(Query()))
    (failed,) = (record for record in records if record.kind == "model.failed")
    assert failed.data["failure"] == "server"
    assert [record.data["stop"] for record in records if record.kind == "task.ended"] == ["model_failed"]
    assert {record.parse().get("ids", {}).get("task") for record in records if not record.kind.startswith("log.")} == {
        result.task_id
    }


KEY = "key-of-this-server-%41+/="
ECHOES: list[tuple[str, Callable[[str], str]]] = [
    ("as it is", lambda key: f"Incorrect API key provided: {key}. You can find yours elsewhere."),
    ("in a header", lambda key: f"got 'Authorization: Bearer {key}'"),
    ("at the edge of what is shown", lambda key: "x" * 330 + key),
    ("base64", lambda key: b64encode(f"user:{key}".encode()).decode()),
    ("escaped", lambda key: quote(key, safe="")),
    ("hexadecimal", lambda key: key.encode().hex()),
    ("backwards", lambda key: key[::-1]),
]


@pytest.mark.parametrize("status", [400, 401, 500])
@pytest.mark.parametrize("echo", [each[1] for each in ECHOES], ids=[each[0] for each in ECHOES])
async def test_the_key_that_a_server_repeats_goes_nowhere(
    server: ModelServer, status: int, echo: Callable[[str], str], tmp_path: Path
) -> None:
    said = echo(KEY)
    server.answers[:] = [failing(status, "invalid_api_key", said)]
    model = find_model(server.model, api_key=KEY, settings={"max_retries": 0})
    log = AuditLog.at(tmp_path / "log")
    result = await AssistantAgent("tester", model, audit=log).run("hello")
    assert result.stop_reason.kind is Stop.MODEL_FAILED
    told = [result.stop_reason.detail, repr(result), *(record.body for record in log.find(Query()))]
    assert len(told) > 4
    assert [text for text in told if KEY[:12] in text or said in text] == []


async def test_what_a_library_raised_is_not_printed_below_the_failure(server: ModelServer) -> None:
    """Its text has the key in it."""
    server.answers[:] = [failing(401, "invalid_api_key", f"wrong: {KEY}")]
    model = find_model(server.model, api_key=KEY, settings={"max_retries": 0})
    async with model.connected():
        with pytest.raises(ModelError) as caught:
            await anext(model.respond(ModelRequest("", (UserMessage(text="hello"),))))
    assert KEY not in "".join(traceback.format_exception(caught.value))


async def test_a_refusal_that_holds_the_key_is_cleaned(server: ModelServer) -> None:
    server.answers[:] = [events(chunk({"refusal": f"not with {KEY}"}), chunk({}, "stop"), USAGE, DONE)]
    model = find_model(server.model, api_key=KEY, settings={"max_retries": 0})
    stop = (await AssistantAgent("tester", model).run("hello")).stop_reason
    assert (stop.kind, KEY in stop.detail) == (Stop.REFUSED, False)


def endless(kind: str, before: bytes, piece: bytes) -> Answer:
    """Says so much that nobody could want it, and counts what was taken."""

    def answer(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("content-type", kind)
        handler.send_header("connection", "close")
        handler.end_headers()
        handler.close_connection = True
        handler.wfile.write(before)
        for _ in range(240):
            handler.wfile.write(piece)
            handler.server.sent += len(piece)

    return answer


MEBIBYTE = b"x" * 1024 * 1024


@pytest.mark.parametrize(
    "answer",
    [
        endless("application/json", b'{"choices": [{"message": {"content": "', MEBIBYTE),
        endless("text/event-stream", b'data: {"choices": [{"delta": {"content": "', MEBIBYTE),
        endless("text/event-stream", b"", b"".join(chunk({"content": "x" * 1000}) for _ in range(1000))),
        endless("text/event-stream", b"", b": nothing\n\n" * 100_000),
    ],
    ids=["a document", "a line", "pieces", "nothing"],
)
async def test_an_answer_without_an_end_is_given_up(server: ModelServer, answer: Answer) -> None:
    server.sent, server.answers[:] = 0, [answer]
    model = find_model(server.model, settings={"max_retries": 0}, most_bytes=256 * 1024)
    stop = (await AssistantAgent("tester", model).run("hello")).stop_reason
    assert (stop.kind, stop.failure) == (Stop.MODEL_FAILED, ModelFailure.TOO_LARGE), stop
    assert "is larger than 256K, and was given up" in stop.detail
    # What is under way in the buffers of two sockets was sent as well.
    assert server.sent < 32 * 1024 * 1024


def test_an_answer_has_a_limit_unless_somebody_says_otherwise(server: ModelServer) -> None:
    assert MOST_BYTES == 8 * 1024 * 1024
    assert RemoteModel(TestModel())._wire.most_bytes == MOST_BYTES


async def test_a_compressed_answer_is_not_unpacked(server: ModelServer) -> None:
    def answer(handler: Handler) -> None:
        assert handler.headers["accept-encoding"] == "identity"
        body = gzip.compress(b" " * 50_000_000)
        handler.send_response(200)
        for name, value in (("type", "application/json"), ("encoding", "gzip"), ("length", str(len(body)))):
            handler.send_header(f"content-{name}", value)
        handler.end_headers()
        handler.wfile.write(body)

    stop = (await agent(server, answer).run("hello")).stop_reason
    assert (stop.failure, "is compressed" in stop.detail) == (ModelFailure.MALFORMED, True)


async def test_a_server_that_does_not_stream_is_read_all_the_same(server: ModelServer) -> None:
    def answer(handler: Handler) -> None:
        message = {"role": "assistant", "content": f"Answer {len(server.requests)}"}
        data = {
            "id": "x",
            "object": "chat.completion",
            "created": 1,
            "model": "tester",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18},
        }
        handler.send(200, json.dumps(data).encode())

    talker = agent(server, answer)
    first, second = await talker.run("hello"), await talker.run("and again")
    assert (first.text, second.text) == ("Answer 2", "Answer 3")
    assert first.usage.tokens == 18
    # It was asked to stream once, and is known from then on.
    assert [request.get("stream", False) for request in server.requests] == [True, False, False]


async def test_an_answer_to_another_request_says_nothing_of_this_one(server: ModelServer) -> None:
    """A stream that ends without an answer, and meanwhile a document for somebody else."""
    other_is_answered = threading.Event()

    def stream(handler: Handler) -> None:
        handler.begin_events()
        handler.wfile.write(chunk({"reasoning_content": "hm"}))
        handler.wfile.flush()
        assert other_is_answered.wait(60)
        for part in (chunk({}, "stop"), USAGE, DONE):
            handler.wfile.write(part)

    server.answers[:] = [stream, failing(400), text("Hello.")]
    model = find_model(server.model, settings={"max_retries": 0, "request_timeout": 30})
    question = ModelRequest("", (UserMessage(text="?"),))
    async with model.connected(), aclosing(model.respond(question)) as first:
        assert isinstance(await anext(first), ThoughtPiece)

        async def ask_as_well() -> None:
            with pytest.raises(ModelError):
                _ = [event async for event in model.respond(question)]

        # In a task of its own, as another agent with the same model would.
        async with anyio.create_task_group() as group:
            group.start_soon(ask_as_well)
        other_is_answered.set()
        with pytest.raises(ModelError, match="answered nothing at all"):
            _ = [event async for event in first]
        _ = [event async for event in model.respond(question)]
    assert [request.get("stream", False) for request in server.requests] == [True, True, True]
