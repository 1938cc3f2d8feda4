"""The pipes, socket and memory file of one run: made here, one side kept, the other handed to the cell."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack

from fumehood.backends.interface import RunRequest
from fumehood.backends.languages import LANGUAGES
from fumehood.guest import wire


class RunDescriptors:
    """`guest` lists the cell's side as it travels: reply, request, stdin, stdout, stderr."""

    def __init__(self, request: RunRequest, owner: int | None) -> None:
        with ExitStack() as undo:
            self.reply, their_reply = wire.socket_pair()
            undo.callback(self.reply.close)
            undo.callback(their_reply.close)
            self.stdout, their_stdout = _output_pipe(undo)
            self.stderr, their_stderr = _output_pipe(undo)
            their_stdin, self.stdin = _stdin(request, undo)
            data = wire.sealed_file(_header(request), request.source or b"")
            undo.callback(os.close, data)
            if owner is not None:
                # Inside, /dev/stdout is opened anew, which only the pipe's owner may do.
                for descriptor in (their_stdout, their_stderr, *([their_stdin] if request.stdin is not None else [])):
                    os.fchown(descriptor, owner, owner)
            self._their_reply: socket.socket = their_reply
            self._theirs = (data, their_stdin, their_stdout, their_stderr)
            undo.pop_all()

    @property
    def guest(self) -> tuple[int, ...]:
        return (self._their_reply.fileno(), *self._theirs)

    def close_guest(self) -> None:
        self._their_reply.close()
        wire.close_all(self._theirs)


def _pipe(undo: ExitStack) -> tuple[int, int]:
    read, write = os.pipe2(os.O_CLOEXEC)
    undo.callback(wire.close_all, (read, write))
    return read, write


def _output_pipe(undo: ExitStack) -> tuple[int, int]:
    """Our end never blocks: a program can read its own output away again after we were told that it is there."""
    read, write = _pipe(undo)
    os.set_blocking(read, False)
    return read, write


def _stdin(request: RunRequest, undo: ExitStack) -> tuple[int, int | None]:
    if request.stdin is None:
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        undo.callback(os.close, nothing)
        return nothing, None
    read, write = _pipe(undo)
    os.set_blocking(write, False)
    return read, write


def _header(request: RunRequest) -> wire.Message:
    return {
        "language": request.language,
        "interpreter": list(request.interpreter) if request.interpreter else None,
        "commands": _commands() if request.interpreter else None,
        "script": request.script_name if request.source is not None else None,
        "arguments": list(request.arguments),
        "environment": dict(request.environment),
        "cwd": request.cwd,
        "leaves": request.leaves,
        "takes": request.takes,
    }


def _commands() -> dict[str, list[str]]:
    """Of all languages: the guest names those that it has when the one that was asked for is missing."""
    return {name: list(language.commands) for name, language in LANGUAGES.items()}
