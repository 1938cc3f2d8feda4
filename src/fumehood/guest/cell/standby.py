"""A run's process, from its birth to the moment it becomes the program.

It is born as a copy of the cell. It goes through its isolation ahead of time, waits for the request, and ends in
`program.start.GuestInterpreter.become`. Nothing of the user's has any influence before that.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from typing import Any, NoReturn

from ..contract import wire
from ..files import service
from ..isolation.run import CHANNEL, Isolation
from ..isolation.steps import StepError
from ..program.start import REHEARSAL, GuestInterpreter, RequestRefusedError


def main(isolation: Isolation, interpreter: GuestInterpreter, *, rehearses: bool) -> NoReturn:
    """Never returns: the process ends here or as the program. It rehearses while no caller waits."""
    try:
        isolation.before.carry_out()
        interpreter.wake()
        if rehearses:
            interpreter.rehearse(*_receive_rehearsal())
        _serve(socket.socket(fileno=CHANNEL), isolation, interpreter)
    except StepError as error:
        os.write(CHANNEL, json.dumps(error.as_message()).encode())
    except BaseException as error:
        # There is no caller to catch it; the host shows what the cell's processes wrote when they failed.
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        os._exit(1)


def _receive_rehearsal() -> tuple[dict[str, Any], bytes]:
    """A request of ours, which comes as those of the host do."""
    ours, theirs = wire.socket_pair()
    with ours, theirs:
        data = os.memfd_create("request", os.MFD_CLOEXEC)
        os.write(data, REHEARSAL)
        socket.send_fds(ours, [b"{}"], [data])
        _, descriptors = wire.receive(theirs)
    request, body = wire.read_sealed_file(descriptors[0])
    wire.close_all([data, *descriptors])
    return request, body


def _serve(channel: socket.socket, isolation: Isolation, interpreter: GuestInterpreter) -> None:
    channel.send(b"ready")
    message, descriptors = wire.receive(channel)
    if message is None:
        return
    request, source = wire.read_sealed_file(descriptors[0])
    isolation.last.carry_out()
    try:
        match request["kind"]:
            case "session":
                interpreter.become_session(request, source, descriptors[1:])
            case "files":
                service.become_service(descriptors[1])
            case _:
                interpreter.become(request, source, descriptors[1:])
    except RequestRefusedError as error:
        wire.send(channel, {"refused": str(error)})
