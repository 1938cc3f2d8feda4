"""The pipes, sockets and memory file of one run: made here, one side kept, the other handed to the cell."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from fumehood.backends.interface import EgressEndpoint, Input, RunRequest
from fumehood.backends.languages import LANGUAGES, Language
from fumehood.guest.contract import wire

# The most that an unprivileged process may set. The pipe is the buffer while the reader is busy.
_PIPE_BYTES = 1024 * 1024


class RunDescriptors:
    """Ours, and in `guest` theirs as they travel: reply, request, then standard streams, then the link."""

    def __init__(self, header: wire.Message, source: bytes, owner: int | None) -> None:
        self._owner = owner
        self.kind: str = header["kind"]
        self.streams: dict[int, int] = {}
        """Descriptor to read from -> stream of the program's, 1 or 2."""
        self.input: int | None = None
        self.link: socket.socket | None = None
        data = wire.sealed_file(header, source)
        self.reply, their_reply = wire.socket_pair()
        self._theirs = [their_reply.detach(), data]

    def add_input(self) -> None:
        read, self.input = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.input, False)
        self._give(read, owned=True)

    def add_empty_input(self) -> None:
        self._give(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def add_outputs(self, *, large: bool = False) -> None:
        for stream in (1, 2):
            read, write = os.pipe2(os.O_CLOEXEC)
            self.streams[read] = stream
            self._give(write, owned=True)
            # Our end never blocks: a program can read its own output away after we were told that it is there.
            os.set_blocking(read, False)
            if large:
                with suppress(PermissionError):  # the user has many large pipes already
                    fcntl.fcntl(read, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    def add_link(self) -> None:
        """A socket to something of ours inside."""
        self.link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self._give(theirs.detach())
        self.link.setblocking(False)

    def _give(self, descriptor: int, *, owned: bool = False) -> None:
        self._theirs.append(descriptor)
        if owned and self._owner is not None:
            # Inside, /dev/stdout is opened anew, which only the pipe's owner may do.
            os.fchown(descriptor, self._owner, self._owner)

    @property
    def guest(self) -> tuple[int, ...]:
        return tuple(self._theirs)

    def close_guest(self) -> None:
        wire.close_all(self._theirs)
        self._theirs = []

    def close(self) -> None:
        self.close_guest()
        self.reply.close()
        if self.link:
            self.link.close()
        wire.close_all([*self.streams, *([] if self.input is None else [self.input])])
        self.streams, self.input = {}, None


def program_descriptors(
    request: RunRequest, owner: int | None, languages: Mapping[str, Language] = LANGUAGES
) -> RunDescriptors:
    """`languages` are those that the sandbox may have."""
    with _undone_on_failure(RunDescriptors(_header(request, languages), _body(request), owner)) as made:
        if request.terminal:
            made.add_link()
            return made
        if request.stdin is None:
            made.add_empty_input()
        else:
            made.add_input()
        made.add_outputs(large=request.stdin is Input.LIVE)
    return made


def session_descriptors(endpoint: EgressEndpoint | None, owner: int | None) -> RunDescriptors:
    environment = dict(endpoint.environment) if endpoint else {}
    header = {"kind": "session", "environment": environment, "source_bytes": 0}
    with _undone_on_failure(RunDescriptors(header, endpoint.trust if endpoint else b"", owner)) as made:
        made.add_empty_input()
        made.add_outputs()
        made.add_link()
    return made


def files_descriptors() -> RunDescriptors:
    with _undone_on_failure(RunDescriptors({"kind": "files"}, b"", None)) as made:
        made.add_link()
    return made


@contextmanager
def _undone_on_failure(made: RunDescriptors) -> Iterator[RunDescriptors]:
    try:
        yield made
    except BaseException:
        made.close()
        raise


def _header(request: RunRequest, languages: Mapping[str, Language]) -> wire.Message:
    return {
        "kind": "program",
        "language": request.language,
        "interpreter": list(request.interpreter) if request.interpreter else None,
        "commands": _commands(languages) if request.interpreter else None,
        "script": request.script_name if request.source is not None else None,
        "arguments": list(request.arguments),
        "source_bytes": len(request.source or b""),
        "environment": _environment(request),
        "cwd": request.cwd,
        "has_input": request.stdin is not None,
        "terminal": [request.terminal.columns, request.terminal.rows] if request.terminal else None,
        "leaves": request.leaves,
        "takes": request.takes,
    }


def _environment(request: RunRequest) -> dict[str, str]:
    """What programs need to know of the way out, and what the caller says, which holds."""
    own = dict(request.environment)
    return {**request.endpoint.environment, **own} if request.endpoint else own


def _body(request: RunRequest) -> bytes:
    """The source, followed by the CA certificates for outbound TLS."""
    return (request.source or b"") + (request.endpoint.trust if request.endpoint else b"")


def _commands(languages: Mapping[str, Language]) -> dict[str, list[str]]:
    """The commands of all languages: if the requested one is missing, the guest's error lists those it has."""
    return {name: list(language.commands) for name, language in languages.items()}
