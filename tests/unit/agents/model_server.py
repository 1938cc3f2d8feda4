"""A server that speaks OpenAI's protocol, on the loopback, well or badly, as each request is told to be answered."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ModelServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.requests.append(json.loads(body))
        self.server.headers.append(dict(self.headers))
        answers = self.server.answers
        (answers.pop(0) if len(answers) > 1 else answers[0])(self)

    def log_message(self, *_: object) -> None:
        pass

    def send(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def begin_events(self) -> None:
        """Ends where the connection ends."""
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True


class ModelServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: list[Answer] = []
        self.requests: list[Any] = []
        self.headers: list[dict[str, str]] = []
        self.over = threading.Event()
        self.open = self.sent = 0

    @property
    def model(self) -> str:
        return f"tester@http://127.0.0.1:{self.server_address[1]}/v1"

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        self.open += 1
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.open -= 1

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is what some tests are about."""


@contextmanager
def serving() -> Iterator[ModelServer]:
    with ModelServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.over.set()
            server.shutdown()
            thread.join()


def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    data = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "tester", "choices": [choice]}
    return b"data: " + json.dumps(data).encode() + b"\n\n"


USAGE = (
    b'data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"tester","choices":[],'
    b'"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18}}\n\n'
)
DONE = b"data: [DONE]\n\n"


def events(*parts: bytes) -> Answer:
    def answer(handler: Handler) -> None:
        handler.begin_events()
        for part in parts:
            handler.wfile.write(part)

    return answer


def text(*pieces: str) -> Answer:
    return events(*(chunk({"content": piece}) for piece in pieces), chunk({}, "stop"), USAGE, DONE)


def tool_call(tool: str, arguments: str, call_id: str = "c1") -> Answer:
    """Its arguments come in two pieces."""
    half = len(arguments) // 2
    first = {"index": 0, "id": call_id, "type": "function", "function": {"name": tool, "arguments": arguments[:half]}}
    second = {"index": 0, "function": {"arguments": arguments[half:]}}
    return events(chunk({"tool_calls": [first]}), chunk({"tool_calls": [second]}), chunk({}, "tool_calls"), USAGE, DONE)


def failing(status: int, code: str = "", message: str = "it failed") -> Answer:
    body = json.dumps({"error": {"message": message, "type": code, "code": code}}).encode()
    return lambda handler: handler.send(status, body)


def hanging(*parts: bytes) -> Answer:
    """Says so much, and then nothing until the test is over."""

    def answer(handler: Handler) -> None:
        handler.begin_events()
        for part in parts:
            handler.wfile.write(part)
        handler.wfile.flush()
        handler.server.over.wait(60)

    return answer
