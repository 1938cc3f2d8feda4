"""A session in a process of its own, made as a cell makes it, and this end of the conversation with it."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fumehood.guest
from fumehood.guest.contract import bundle, frames

SITE_PACKAGES = sysconfig.get_paths()["purelib"]

# The guest's folder is imported as a package of its own and taken out of sight; the session is a fork of that.
_BOOT = """
import os, site, socket, sys
number, folder, scratch, preload, hidden, *module_path = sys.argv[1:]
sys.path.insert(0, folder)
from guest.contract import frames
from guest.program import start, streams
from guest.program.session import loop
del sys.path[0]
ours = [sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == "guest"]
sys.path[:] = [os.getcwd(), *sys.path, *module_path]
for name in filter(None, hidden.split(",")):
    sys.modules[name] = None
for name in filter(None, preload.split(",")):
    __import__(name)
site.setquit()
last = next(reversed(sys.modules))
child = os.fork()
if child:
    os.close(int(number))
    os.closerange(0, 3)
    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 0xFF)
conversation = frames.FrameSocket(socket.socket(fileno=int(number)))
os.set_inheritable(int(number), False)
sys.stdin, sys.stdout, sys.stderr = sys.__stdin__, sys.__stdout__, sys.__stderr__ = streams.open_streams()
start._make_main_module("")
os.write(1, str(os.getpid()).encode() + b"\\n")
loop.serve(conversation, last, scratch, [])
"""


@dataclass
class Answer:
    """What one run gave."""

    number: int
    displays: list[dict[str, object]] = field(default_factory=list)
    metadata: list[dict[str, object]] = field(default_factory=list)
    end: dict[str, Any] = field(default_factory=dict)
    stdout: str = ""
    stderr: str = ""

    @property
    def ended(self) -> str:
        return self.end["ended"]

    @property
    def values(self) -> list[object]:
        return [display.get("text/plain") for display in self.displays]


class SessionEndedError(Exception):
    pass


class Session:
    """Starts with `execute`, because the process is ready only when it says so."""

    def __init__(
        self,
        folder: Path,
        *,
        packages: Iterable[str] = (),
        preload: Iterable[str] = (),
        hidden: Iterable[str] = (),
    ) -> None:
        workspace, self.scratch = folder / "workspace", folder / "scratch"
        workspace.mkdir()
        self.scratch.mkdir()
        self.workspace = workspace
        self._socket, theirs = socket.socketpair()
        guest = Path(fumehood.guest.__file__).parent.parent
        with theirs:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", "-c", _BOOT, str(theirs.fileno()), str(guest), str(self.scratch)),
                    *(",".join(preload), ",".join(hidden), *packages),
                ],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={"LC_ALL": "C.UTF-8", "HOME": str(workspace), "PATH": os.environ["PATH"]},
                cwd=workspace,
                start_new_session=True,
            )
        assert self.process.stdout
        self.pid = int(self.process.stdout.readline())
        self._decoder = frames.Decoder(bundle.MAX_DISPLAY_BYTES)
        self._number = 0
        self._outputs = {self.process.stdout.fileno(): bytearray(), self.process.stderr.fileno(): bytearray()}  # type: ignore[union-attr]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._socket, selectors.EVENT_READ)
        for descriptor in self._outputs:
            os.set_blocking(descriptor, False)
            self._selector.register(descriptor, selectors.EVENT_READ)
        header, _ = self.next_message()
        self.shell = header["ready"]

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> tuple[int, str, str]:
        """Hang up; returns the exit code and the last words."""
        self._socket.close()
        self._selector.close()
        try:
            code = self.process.wait(60)
        finally:
            # In a sandbox the namespace ends with the session; here an interrupted run may have left a child.
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        if self.process.stdout is None or self.process.stdout.closed:
            return code, "", ""
        output, errors = self.process.communicate()
        return code, output.decode(), errors.decode()

    def interrupt(self) -> None:
        os.kill(self.pid, signal.SIGINT)

    def execute(self, source: str | bytes, stdin: bytes = b"") -> Answer:
        return self.finish(self.start(source, stdin))

    def start(self, source: str | bytes, stdin: bytes = b"") -> Answer:
        """Returns when the run has started: from here on it can be interrupted."""
        self._number += 1
        code = source.encode() if isinstance(source, str) else source
        header: frames.Header = {"do": "execute", "run": self._number, "source_bytes": len(code)}
        self._socket.sendall(frames.encode(header, code + stdin))
        answer = Answer(self._number)
        while (message := self.next_message())[0] != {"started": self._number}:
            _take(answer, *message)
        return answer

    def wait_for_output(self, text: str) -> None:
        while text.encode() not in b"".join(self._outputs.values()):
            for key, _ in self._selector.select():
                if key.fd in self._outputs:
                    self._read(key.fd)

    def finish_interrupted(self, answer: Answer) -> Answer:
        """Interrupt it, again and again: Python does not see an interrupt in the moment before a system call blocks."""
        self.interrupt()
        return self.finish(answer, interrupting=True)

    def finish(self, answer: Answer, *, interrupting: bool = False) -> Answer:
        while True:
            header, body = self.next_message(interrupting=interrupting)
            if "done" in header:
                break
            _take(answer, header, body)
        assert header.pop("done") == answer.number
        answer.end = header
        for descriptor in self._outputs:
            self._read(descriptor)
        answer.stdout, answer.stderr = (bytes(output).decode() for output in self._outputs.values())
        for output in self._outputs.values():
            output.clear()
        return answer

    def next_message(self, *, interrupting: bool = False) -> tuple[frames.Header, bytes]:
        while (message := self._decoder.next()) is None:
            events = self._selector.select(1 if interrupting else None)
            if not events:
                self.interrupt()
            for key, _ in events:
                if key.fd in self._outputs:
                    self._read(key.fd)
                else:
                    data = self._socket.recv(1 << 20)
                    if not data:
                        raise SessionEndedError(bytes(list(self._outputs.values())[1]).decode())
                    self._decoder.feed(data)
        return message

    def _read(self, descriptor: int) -> None:
        try:
            while data := os.read(descriptor, 1 << 16):
                self._outputs[descriptor] += data
            self._selector.unregister(descriptor)
        except (BlockingIOError, KeyError):
            return


def _take(answer: Answer, header: frames.Header, body: bytes) -> None:
    data, metadata = bundle.decode_bundle(header, body)
    answer.displays.append(data)
    answer.metadata.append(metadata)
