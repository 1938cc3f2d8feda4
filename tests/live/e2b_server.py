"""A server of E2B's protocol on the loopback, in a process of its own, with two tenants."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

POLICIES = {
    "web": "version: 1\nfilesystem: {outputs: ['**']}\nnetwork: {publish: [8000]}\n",
    "online": (
        "version: 1\nnetwork:\n  allow:\n"
        + "".join(f"  - {{host: '{host}', ports: [443]}}\n" for host in ("api.example.com", "*.example.org"))
    ),
    "small": "version: 1\nfilesystem: {outputs: ['out/**'], workspace: {size: 1M}}\ncommands: {deny: ['rm *']}\n",
}


@dataclass(frozen=True)
class E2bServer:
    process: int
    port: int
    key: str
    foreign_key: str
    """Of another tenant."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """All that a program needs to use this server instead of E2B's."""
        return {"E2B_API_KEY": self.key, "E2B_API_URL": self.url, "E2B_SANDBOX_URL": self.url}

    @property
    def peak_memory_bytes(self) -> int:
        facts = dict(line.split(":", 1) for line in Path(f"/proc/{self.process}/status").read_text().splitlines())
        return int(facts["VmHWM"].split()[0]) * 1024


@contextmanager
def serving(folder: Path) -> Iterator[E2bServer]:
    command = [sys.executable, __file__, folder]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield E2bServer(process.pid, **json.loads(process.stdout.readline()))
        finally:
            process.stdin.close()  # which ends it
            process.wait(60)


async def _serve(folder: str) -> None:
    import uvicorn

    from fumehood.server.e2b import Terms, e2b_app
    from fumehood.server.identity.keys import create_key, e2b_spelling
    from fumehood.server.identity.principals import Scope
    from fumehood.server.lifetime import open_server
    from fumehood.server.settings import ServerSettings
    from fumehood.server.tenants.catalogue import put_policy

    settings = ServerSettings(state=folder, strict=False)
    async with open_server(settings, lambda reason: None) as server:
        keys = [
            (await create_key(server.database, name, "tests", [Scope.RUN, Scope.FILES]))[0]
            for name in ("acme", "other")
        ]
        for name, text in POLICIES.items():
            await put_policy(server.database, "acme", name, text, "tests")
        terms = Terms(take_request=server.requests.take)
        app = e2b_app(server.database, server.registry, server.chains.trail_of, terms)
        listening = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
        asyncio.get_running_loop().add_reader(sys.stdin, setattr, listening, "should_exit", True)
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
            listener.bind(("127.0.0.1", 0))
            own, foreign = map(e2b_spelling, keys)
            print(json.dumps({"port": listener.getsockname()[1], "key": own, "foreign_key": foreign}), flush=True)
            await listening.serve([listener])


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1]))
