"""A real browser, and a site of our own for it: a page runs a script there and tells the site what came of it."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue

BROWSER = "chromium"
SECONDS = 60
# As root it has no sandbox of its own; it opens nothing but our page. It asks nobody outside for anything.
_OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions"),
)

USE_SERVER = """
const send = async (method, message, more) => {
  const headers = {authorization: 'Bearer TOKEN', accept: 'application/json, text/event-stream', ...more};
  if (message) headers['content-type'] = 'application/json';
  return await fetch('ADDRESS', {method, headers, body: message && JSON.stringify({jsonrpc: '2.0', ...message})});
};
const hello = {protocolVersion: '2025-11-25', capabilities: {}, clientInfo: {name: 'page', version: '1'}};
const greeted = await send('POST', {id: 1, method: 'initialize', params: hello});
const session = {'mcp-session-id': greeted.headers.get('mcp-session-id'), 'mcp-protocol-version': '2025-11-25'};
await greeted.text();
await (await send('POST', {method: 'notifications/initialized'}, session)).text();
const call = {name: 'python', arguments: {code: 'print(6 * 7)'}};
const answer = await (await send('POST', {id: 2, method: 'tools/call', params: call}, session)).text();
const left = await send('DELETE', undefined, session);
return /stdout:.n(\\d+)/.exec(answer)[1] + ' ' + left.status;
"""


def missing() -> str | None:
    return None if shutil.which(BROWSER) else f"{BROWSER} is not installed"


class Site(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.port: int = self.server_address[1]
        self.script = ""
        self.outcomes: Queue[str] = Queue()

    def outcome(self, origin: str, script: str, profile: Path) -> str:
        """What a page of that origin, which has to lead here, gets out of a script; how it fails if it does."""
        self.script = script
        command = [BROWSER, *_OPTIONS, f"--user-data-dir={profile}", f"{origin}/"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                return self.outcomes.get(timeout=SECONDS)
            finally:
                process.terminate()


class _Handler(BaseHTTPRequestHandler):
    server: Site

    def do_GET(self) -> None:
        work = f"(async () => {{ {self.server.script} }})().catch(String)"
        tell = "outcome => fetch('/outcome', {method: 'POST', body: outcome})"
        self._answer(f"<!doctype html><script>{work}.then({tell})</script>".encode())

    def do_POST(self) -> None:
        self.server.outcomes.put(self.rfile.read(int(self.headers["content-length"])).decode())
        self._answer(b"")

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html; charset=utf-8")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def visiting(address: str, profile: Path) -> Iterator[None]:
    """A browser that shows this page, while the block lasts."""
    command = [BROWSER, *_OPTIONS, f"--user-data-dir={profile}", address]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()


@contextmanager
def site() -> Iterator[Site]:
    with Site() as opened:
        thread = threading.Thread(target=opened.serve_forever)
        thread.start()
        try:
            yield opened
        finally:
            opened.shutdown()
            thread.join()
