"""An engine that is reached by ssh: each connection is an ssh process whose other end speaks for the engine there.

The same way that Docker's own client goes: `ssh HOST docker system dial-stdio`, with the user's configuration, keys and
known hosts. Nothing is asked on a terminal: a host that wants a password, or is not known, is an error.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import socket
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from fumehood.errors import UsageError

_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]*", re.ASCII)
_REMOTE = ("docker", "system", "dial-stdio")
_LAST_WORDS_BYTES = 2000
_LAST_WORDS_SECONDS = 2.0


def ssh_argv(host: str) -> list[str]:
    """The command of ssh for `ssh://user@host:port`."""
    parts = urlsplit(host)
    name, user = parts.hostname or "", parts.username
    words = [name, *([user] if user is not None else [])]
    # No word may be taken for an option, or for more than a word by a shell that a configuration names.
    if not all(map(_WORD.fullmatch, words)) or parts.password or parts.path.strip("/") or parts.query:
        raise UsageError(f"docker.host {host!r} must be ssh://user@host:port, without a password or a path")
    ssh = shutil.which("ssh")
    if ssh is None:
        raise UsageError(f"engine {host} is reached with ssh, which is not here: `sudo apt-get install openssh-client`")
    port = ["-p", str(parts.port)] if parts.port else []
    login = ["-l", user] if user else []
    return [ssh, "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=30", *port, *login, "--", name, *_REMOTE]


class SshConnector(aiohttp.UnixConnector):
    def __init__(self, host: str) -> None:
        super().__init__("ssh")
        self._argv = ssh_argv(host)
        self._said = b""
        self._processes: dict[asyncio.Task[None], asyncio.subprocess.Process] = {}
        """Processes of ssh by the task that waits for their end."""

    async def _create_connection(self, req: Any, traces: Any, timeout: Any) -> Any:
        ours, theirs = socket.socketpair()
        loop: Any = asyncio.get_running_loop()
        try:
            with theirs:
                process = await asyncio.create_subprocess_exec(
                    *self._argv,
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    stderr=asyncio.subprocess.PIPE,
                    start_new_session=True,
                )
            ours.setblocking(False)
            _, protocol = await loop.create_unix_connection(self._factory, sock=ours)
        except BaseException:
            ours.close()
            raise
        task: asyncio.Task[None] = loop.create_task(self._listen(process))
        self._processes[task] = process
        task.add_done_callback(self._processes.pop)
        return protocol

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        """Reads the stderr of ssh until it exits, and keeps the last bytes."""
        assert process.stderr is not None
        while data := await process.stderr.read(_LAST_WORDS_BYTES):
            self._said = (self._said + data)[-_LAST_WORDS_BYTES:]
        await process.wait()

    async def last_words(self) -> str:
        """What ssh said when a connection failed; it may be a moment behind the failure."""
        if self._processes:
            await asyncio.wait(list(self._processes), timeout=_LAST_WORDS_SECONDS)
        return " ".join(self._said.decode("utf-8", "replace").split())

    async def wait_closed(self) -> None:
        """Every ssh ends when its connection is closed; one that does not is left no choice."""
        if not self._processes:
            return
        _, pending = await asyncio.wait(list(self._processes), timeout=_LAST_WORDS_SECONDS)
        for task in pending:
            self._processes[task].kill()
        if pending:
            await asyncio.wait(pending)
