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
from ..contract.paths import RUN_FOLDER
from ..files import service
from ..isolation.run import CHANNEL, Isolation
from ..isolation.steps import StepError
from ..program.start import REHEARSAL, GuestInterpreter, RequestRefusedError


def main(isolation: Isolation, interpreter: GuestInterpreter, *, rehearses: bool) -> NoReturn:
    """Never returns: the process ends here or as the program. It rehearses while no caller waits."""
    try:
        isolation.before.carry_out()
        interpreter.wake()
        if rehearses and (received := receive_rehearsal()):
            interpreter.rehearse(*received)
        _serve(wire.packet_socket(CHANNEL), isolation, interpreter)
    except StepError as error:
        os.write(CHANNEL, json.dumps(error.as_message()).encode())
    except BaseException as error:
        # There is no caller to catch it; the host shows what the cell's processes wrote when they failed.
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        os._exit(1)


def receive_rehearsal() -> tuple[dict[str, Any], bytes] | None:
    """A request of ours, which comes as those of the host do.

    None where it cannot be sent: this process has the limits of the program already, and the kernel counts descriptors
    on their way for all processes of a user.
    """
    descriptors: list[int] = []
    ours, theirs = wire.socket_pair()
    with ours, theirs:
        try:
            # No memory file, as the host's is: a policy that lists what may be executed does not allow them.
            descriptors.append(os.open(RUN_FOLDER, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC))
            os.write(descriptors[0], REHEARSAL)
            socket.send_fds(ours, [b"{}"], descriptors)
            descriptors += wire.receive(theirs)[1]
            return wire.read_sealed_file(descriptors[1])
        except OSError:
            return None
        finally:
            wire.close_all(descriptors)


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
