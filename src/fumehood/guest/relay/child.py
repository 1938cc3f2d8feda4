"""A program's process, from the fork to the moment it becomes the program."""

from __future__ import annotations

import os
import signal
import socket
import sys
from typing import TYPE_CHECKING, NoReturn, Protocol

from ..contract import wire
from ..files import service
from ..isolation.steps import StepError
from ..program import toolchain
from ..program.start import RequestRefusedError

if TYPE_CHECKING:
    from .supervisor import RunStart


class RunProcesses(Protocol):
    """What holds a run's processes together."""

    def enter(self) -> None: ...


def main(run: RunStart, processes: RunProcesses, channel: socket.socket, others: tuple[socket.socket, ...]) -> NoReturn:
    """Never returns: the process ends here or as the program. `others` are the supervisor's own."""
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for line in others:
            line.close()
        processes.enter()
        run.isolation.plan.carry_out()
        run.interpreter.register_hooks()
        run.interpreter.wake()
        _become(run)
    except StepError as error:
        wire.send(channel, error.as_message())
    except RequestRefusedError as error:
        wire.send(channel, {"refused": str(error)})
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        os._exit(1)


def _become(run: RunStart) -> None:
    data, *streams = run.descriptors[1:]
    request, source = wire.read_sealed_file(data)
    run.interpreter.run_folder = run.folder
    match request["kind"]:
        case "session":
            run.interpreter.become_session(request, source, streams)
        case "files":
            service.become_service(streams[0])
        case _:
            toolchain.relocate(request, run.folder)
            run.interpreter.become(request, source, streams)
