"""A web server to run in a sandbox: a page with its parts, a WebSocket that echoes, and answers that break HTTP."""

from __future__ import annotations

PORT = 8000
SERVER = r"""
import base64, hashlib, http.server, itertools, json, sys

PAGE = b'''<!doctype html><link rel="stylesheet" href="/style.css">
<p id="text">hello</p><script src="/script.js"></script>'''
SCRIPT = b'''
const socket = new WebSocket(`ws://${location.host}/echo`);
socket.onopen = () => socket.send("marco");
socket.onmessage = async (event) => {
  const colour = getComputedStyle(document.getElementById("text")).color;
  const seen = [event.data, colour, document.cookie, location.search, document.referrer].join("|");
  await fetch("/outcome", {method: "POST", body: seen});
};
'''
COOKIES = (
    *("fumehood-token=stolen; Path=/", "=fumehood-token=stolen", "FUMEHOOD-TOKEN=x"),
    "app=1; Domain=localhost",
)
ODD = {
    "/huge-header": b"HTTP/1.1 200 OK\r\nX: " + b"a" * 1_000_000 + b"\r\n\r\n",
    "/no-http": b"hello, this is not HTTP\r\n\r\n",
    "/two-lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "/nothing": b"",
    "/half-a-head": b"HTTP/1.1 200 OK\r\nContent-",
    "/unasked-switch": b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    "/bad-chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
}

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path in ODD:
            self.wfile.write(ODD[self.path])
            self.close_connection = True
        elif self.path == "/endless":
            self.send_response(200)
            self.end_headers()
            for _ in itertools.count():
                self.wfile.write(b"x" * 65536)
        elif self.path == "/echo":
            self.echo()
        elif self.path == "/cookies":
            self.answer(b"", "text/plain", [("Set-Cookie", value) for value in COOKIES])
        elif self.path == "/style.css":
            self.answer(b"p { color: rgb(1, 2, 3) }", "text/css")
        elif self.path == "/script.js":
            self.answer(SCRIPT, "text/javascript")
        elif self.path.startswith("/seen"):
            seen = {"path": self.path, "headers": self.headers.items()}
            self.answer(json.dumps(seen).encode(), "application/json")
        else:
            self.answer(PAGE, "text/html")

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        print("outcome", body.decode(), flush=True)
        self.answer(body, "text/plain")

    def echo(self):
        key = self.headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        self.end_headers()
        _, length = self.rfile.read(2)
        mask = self.rfile.read(4)
        data = bytes(byte ^ mask[place % 4] for place, byte in enumerate(self.rfile.read(length & 127)))
        self.wfile.write(bytes([0x81, len(data) + 5]) + b"echo " + data)
        self.rfile.read(1)
        self.close_connection = True

    def answer(self, body, kind, headers=()):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass

http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Handler).serve_forever()
"""
