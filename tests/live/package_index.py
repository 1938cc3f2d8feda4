"""A package index on this machine, with wheels made on the spot: it notes who asks, and answers when it is told."""

from __future__ import annotations

import hashlib
import io
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def make_wheel(name: str, files: dict[str, str], *, version: str = "1.0", requires: str = "") -> tuple[str, bytes]:
    """File name and content of a pure wheel."""
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    content = {
        **files,
        f"{info}/METADATA": metadata + (f"Requires-Dist: {requires}\n" if requires else ""),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if f"{name}.py" in files:
        content[f"{info}/entry_points.txt"] = f"[console_scripts]\n{name}-tool = {name}:main\n"
    record = "".join(f"{path},,\n" for path in (*content, f"{info}/RECORD"))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, text in {**content, f"{info}/RECORD": record}.items():
            archive.writestr(path, text)
    return f"{name}-{version}-py3-none-any.whl", buffer.getvalue()


class PackageIndex(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files = files
        self.asked = threading.Event()
        """Somebody has come."""
        self.answering = threading.Event()
        """Until it is set, nobody gets an answer."""
        self.paths: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/simple"

    def downloads(self) -> list[str]:
        return [path for path in self.paths if path.endswith((".whl", ".tar.gz"))]

    def hash_of(self, name: str) -> str:
        return "sha256:" + hashlib.sha256(self.files[name]).hexdigest()

    def answer(self, path: str) -> bytes | None:
        if path.startswith("/simple/"):
            project = path.split("/")[2]
            names = [name for name in self.files if name.partition("-")[0] == project]
            return "".join(f'<a href="/files/{name}">{name}</a>' for name in names).encode() if names else None
        return self.files.get(path.removeprefix("/files/"))


class _Handler(BaseHTTPRequestHandler):
    server: PackageIndex

    def do_GET(self) -> None:
        self.server.paths.append(self.path)
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def _answer(self) -> None:
        self.server.asked.set()
        self.server.answering.wait(60)
        content = self.server.answer(self.path)
        self.send_response(200 if content is not None else 404)
        self.send_header("Content-Type", "text/html" if self.path.startswith("/simple/") else "application/zip")
        self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content or b"")

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: a test that fails shows what it needs."""

    def handle(self) -> None:
        try:
            super().handle()
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the installer was killed, as the test wants


@contextmanager
def open_index(*wheels: tuple[str, bytes], answering: bool = True) -> Iterator[PackageIndex]:
    with PackageIndex(dict(wheels)) as index:
        if answering:
            index.answering.set()
        server = threading.Thread(target=index.serve_forever, kwargs={"poll_interval": 0.01})
        server.start()
        try:
            yield index
        finally:
            index.answering.set()
            index.shutdown()
            server.join()
