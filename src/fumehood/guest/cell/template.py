"""The process whose copies the runs of a cell are: it forks them, waits for their end, and does nothing else.

After a fork, memory is copied page by page wherever one of both processes writes. The cell's own loop writes to
hundreds of pages between two runs; this process, to a few dozen. So the cell forks it once, and asks it for each run.

It is asked over a socket, and answers before it is asked again. It never sees a request, and holds no descriptor but
the socket and its own namespaces; those of a run come with the wish, and go with the fork.
"""

from __future__ import annotations

import array
import os
import socket
import struct
from typing import NamedTuple, NoReturn

from ..contract import wire
from ..isolation import kernel
from ..isolation.descriptors import keep_only
from ..isolation.run import Isolation
from ..program.start import GuestInterpreter
from . import standby

_CHANNEL = 3
_NOTHING_OPEN = [(os.POSIX_SPAWN_CLOSE, number) for number in range(_CHANNEL)]
# What is to be done, how (`_REHEARSES` and so on), and with which process.
_WISH = struct.Struct("=BBi")
_FORK, _BURY, _FORGET, _PRACTICE = range(4)
_REHEARSES, _ENTERS_NETWORK, _MAKES_NETWORK = 1, 2, 4
_BIRTH, _DEATH, _FAILURE = struct.Struct("=iii"), struct.Struct("=iqq"), struct.Struct("=i")
_MOST_DESCRIPTORS = 16
_ROOM = socket.CMSG_SPACE(4 * _MOST_DESCRIPTORS)
_CLOSED_ON_EXECUTION = int(socket.MSG_CMSG_CLOEXEC)
_MOST_BYTES = 4096
# Python adapts code to what it is used for, which takes it that many times, and would do it anew in every run.
_PRACTICES = 16


class Birth(NamedTuple):
    """The two processes of a run, by their numbers in the cell."""

    reaper: int
    program: int


class Death(NamedTuple):
    """How a process ended, and what it has used."""

    status: int
    cpu_us: int
    peak_memory_kib: int


class RunTemplate:
    """The cell's side of it. OSError if it cannot do what it is asked for; if it is gone, the cell has to end."""

    def __init__(self, isolation: Isolation, interpreter: GuestInterpreter, reaper: str) -> None:
        self._channel, theirs = wire.socket_pair()
        if kernel.fork() == 0:
            try:
                keep_only((0, 1, 2, theirs.detach()))
                os.set_inheritable(_CHANNEL, False)
                _Copying(isolation, interpreter, reaper).serve()
            finally:
                os._exit(1)
        theirs.close()

    def fileno(self) -> int:
        """Readable only when it is gone: it says nothing by itself."""
        return self._channel.fileno()

    def fork(self, descriptors: list[int], *, rehearses: bool, network: int | None, makes_network: bool) -> Birth:
        """A run's processes, in a process namespace of their own. The program is a standby, with these descriptors.

        It is born in `network`, in a new network namespace, or in the cell's own.
        """
        how = rehearses * _REHEARSES | makes_network * _MAKES_NETWORK
        if network is not None:
            how |= _ENTERS_NETWORK
            descriptors = [*descriptors, network]
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
        self._channel.sendmsg([_WISH.pack(_FORK, how, 0)], rights)
        return Birth(*_BIRTH.unpack(self._answer(_BIRTH.size))[1:])

    def bury(self, process: int) -> Death:
        """Waits for the end of one of the two; of the reaper's only after the program's."""
        self._channel.send(_WISH.pack(_BURY, 0, process))
        return Death(*_DEATH.unpack(self._answer(_DEATH.size)))

    def forget(self, process: int) -> None:
        """As `bury`, for a process that is about to end and of which nobody wants to know."""
        self._channel.send(_WISH.pack(_FORGET, 0, process))

    def practise(self) -> None:
        """Goes through what a run does, so that the runs to come do it quicker. Nobody waits for it."""
        self._channel.send(_WISH.pack(_PRACTICE, 0, 0))

    def _answer(self, size: int) -> bytes:
        data = self._channel.recv(_MOST_BYTES)
        if not data:
            raise RuntimeError("the process that runs are copies of is gone")
        if len(data) != size:
            raise OSError(_FAILURE.unpack_from(data)[0], data[_FAILURE.size :].decode())
        return data


class _Copying:
    """In the process itself. Written to touch little memory: all that it touches is copied after each fork."""

    def __init__(self, isolation: Isolation, interpreter: GuestInterpreter, reaper: str) -> None:
        self._isolation, self._interpreter, self._reaper = isolation, interpreter, reaper
        self._channel = wire.packet_socket(_CHANNEL)
        # SAFETY: the next two children are born in a new process namespace, the first as its process 1; we stay here.
        self._part_processes = kernel.PreparedCall("unshare", kernel.CLONE_NEWPID)
        processes, self._network = (
            os.open(f"/proc/self/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC) for kind in ("pid", "net")
        )
        self._rejoin_processes = kernel.PreparedCall("setns", processes, kernel.CLONE_NEWPID)

    def serve(self) -> NoReturn:
        receive, send = self._channel.recvmsg, self._channel.send
        while True:
            data, ancillary, _, _ = receive(_WISH.size, _ROOM, _CLOSED_ON_EXECUTION)
            if not data:
                os._exit(0)
            wish, how, process = _WISH.unpack(data)
            if wish == _FORK:
                send(self._fork(array.array("i", ancillary[0][2]), how))
            elif wish == _PRACTICE:
                self._practise()
            else:
                _, status, used = os.wait4(process, 0)
                if wish == _BURY:
                    send(_DEATH.pack(status, int((used[0] + used[1]) * 1_000_000), used[2]))

    def _fork(self, descriptors: array.array[int], how: int) -> bytes:
        network = descriptors.pop() if how & _ENTERS_NETWORK else None
        for place, descriptor in enumerate(descriptors):
            self._isolation.inherited[place].value = descriptor
        reaper = 0
        try:
            self._part_processes.make()
            reaper = os.posix_spawn(self._reaper, ["init"], {}, file_actions=_NOTHING_OPEN)
            if how & _MAKES_NETWORK:
                # SAFETY: a network namespace without any device but its loopback; we return to the cell's own.
                kernel.unshare(kernel.CLONE_NEWNET)
            elif network is not None:
                kernel.setns(network, kernel.CLONE_NEWNET)
            program = kernel.fork()
            if program == 0:
                standby.main(self._isolation, self._interpreter, rehearses=bool(how & _REHEARSES))
            answer = _BIRTH.pack(0, reaper, program)
        except OSError as error:
            if reaper:
                os.kill(reaper, 9)
                os.waitpid(reaper, 0)
            answer = _FAILURE.pack(error.errno) + str(error.strerror).encode()
        self._rejoin_processes.make()
        if how & (_ENTERS_NETWORK | _MAKES_NETWORK):
            kernel.setns(self._network, kernel.CLONE_NEWNET)
        for descriptor in descriptors:
            os.close(descriptor)
        if network is not None:
            os.close(network)
        return answer

    def _practise(self) -> None:
        for _ in range(_PRACTICES):
            if received := standby.receive_rehearsal():
                self._interpreter.rehearse(*received)
