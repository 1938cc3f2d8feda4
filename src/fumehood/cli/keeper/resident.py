"""The resident process: accepts clients, compares their rights with its own, assigns each a worker, relays messages.

One thread that never blocks, because all clients wait for it. It holds a lock as long as it lives, so there is one for
each user, interpreter and installation; it ends when it was not needed for a while, or when its code on the disk has
changed.
"""

from __future__ import annotations

import gc
import os
import secrets
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import NoReturn

import fumehood_client
from fumehood import __version__
from fumehood.cli.keeper import worker
from fumehood.cli.keeper.code_on_disk import CodeOnDisk
from fumehood.cli.keeper.identity import ClientRefusedError, check_client
from fumehood.guest.contract import wire

_IDLE_SECONDS = 600.0
_SPARE_SECONDS = 60.0
"""How long a worker is kept that is not the only one."""
_REPLY_SECONDS = 10.0
"""How long a client may take to send its request, and a worker to end a run whose client is gone."""
_MOST_WORKERS = 8
_MOST_RUNS = 1000
"""How many runs a worker does. What it has read of the machine, such as certificates, does not grow old in it."""
_MOST_CLIENTS = 256
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGSTOP, signal.SIGCONT)


def main(lock: int) -> NoReturn:
    """The whole life of the process, in the folder of its socket."""
    _reset_signals()
    name = f"{fumehood_client.name_of_keeper()}.socket"
    with suppress(FileNotFoundError):
        os.unlink(name)  # of one that was killed: the lock is ours
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
    os.umask(0o077)
    listener.bind(name)
    bound = os.stat(name).st_ino
    gc.freeze()  # so that workers share these pages for longer
    resident = Resident(listener, lock)
    resident.start_worker(is_warm=True)
    listener.listen(_MOST_CLIENTS)
    try:
        resident.serve()
    finally:
        with suppress(FileNotFoundError):
            if os.stat(name).st_ino == bound:  # and not that of another, begun because our lock was removed
                os.unlink(name)
        resident.close()
    sys.exit(0)


def _reset_signals() -> None:
    """What the process that started us ignored or blocked (`nohup`, a job in the background) is not for our clients."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


class Worker:
    def __init__(self, process: int, channel: socket.socket) -> None:
        self.process, self.channel = process, channel
        self.client: ClientConnection | None = None
        self.is_busy, self.served = False, 0
        self.since = time.monotonic()
        """When it was last needed; or when its client went away, while it is busy without one."""

    def send(self, message: wire.Message, descriptors: tuple[int, ...] = ()) -> None:
        with suppress(OSError):  # it has died, which its channel says next
            wire.send(self.channel, message, descriptors)

    def signal(self, *numbers: int) -> None:
        for number in numbers:
            os.kill(self.process, number)  # it is our child, and was not waited for: the number is its own


class ClientConnection:
    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.worker: Worker | None = None
        self.has_sent = self.is_running = False
        self.since = time.monotonic()
        self._proof: tuple[int, str] | None = None

    def make_proof(self) -> int | None:
        """A descriptor whose name only a process can know that may look into this one; None if there is no room."""
        name = secrets.token_hex(16)
        with suppress(OSError):
            self._proof = os.memfd_create(name, os.MFD_CLOEXEC), f"/memfd:{name} (deleted)"
        return self._proof[0] if self._proof else None

    def is_proof(self, text: str) -> bool:
        """Whether it is the descriptor's name; can be asked once."""
        expected = self._proof[1] if self._proof else None
        self.forget_proof()
        return text == expected

    def forget_proof(self) -> None:
        if self._proof:
            os.close(self._proof[0])
            self._proof = None

    def send(self, message: wire.Message) -> None:
        with suppress(OSError):  # it has gone away, or does not read
            wire.send(self.connection, message, flags=socket.MSG_DONTWAIT)


class Resident:
    def __init__(self, listener: socket.socket, lock: int) -> None:
        self._listener, self._lock = listener, lock
        self._code = CodeOnDisk()
        self._poll = select.poll()
        self._poll.register(listener, select.POLLIN)
        self._clients: dict[int, ClientConnection] = {}
        self._workers: dict[int, Worker] = {}
        self._begun = self._needed = time.monotonic()
        self._served = 0
        self._is_ending = False

    def serve(self) -> None:
        """Until it is stopped and no run is under way, or was idle for long."""
        while self._workers and (self._clients or self._is_busy() or not self._is_ending):
            for descriptor, _ in self._poll.poll(self._poll_seconds() * 1000):
                if descriptor == self._listener.fileno():
                    self._accept()
                elif descriptor in self._clients:
                    self._read_client(self._clients[descriptor])
                elif descriptor in self._workers:
                    self._read_worker(self._workers[descriptor])
            self._end_overdue()

    def _is_busy(self) -> bool:
        """Whether a worker has a run, also one whose client is gone: it is ended first."""
        return any(each.is_busy for each in self._workers.values())

    def close(self) -> None:
        for each in list(self._workers.values()):
            each.channel.close()
        for each in list(self._workers.values()):
            os.waitpid(each.process, 0)

    def start_worker(self, *, is_warm: bool = False) -> Worker:
        ours, theirs = wire.socket_pair()
        resident = os.getpid()
        process = os.fork()
        if process == 0:
            self._close_in_child(ours)
            worker.main(theirs, resident, is_warm=is_warm)
        theirs.close()
        started = self._workers[ours.fileno()] = Worker(process, ours)
        self._poll.register(ours, select.POLLIN)
        return started

    def _close_in_child(self, ours: socket.socket) -> None:
        """A worker holds nothing of the resident's: the lock and the connections end with the resident."""
        for client in self._clients.values():
            client.connection.close()
            client.forget_proof()
        for each in (self._listener, ours, *(each.channel for each in self._workers.values())):
            each.close()
        os.close(self._lock)

    def _poll_seconds(self) -> float:
        """How long to wait for messages: until something may be overdue."""
        waits = any(not client.is_running for client in self._clients.values()) or len(self._workers) > 1
        return 1.0 if waits or any(each.is_busy and not each.client for each in self._workers.values()) else 30.0

    def _end_overdue(self) -> None:
        now = time.monotonic()
        for client in list(self._clients.values()):
            if not client.is_running and now - client.since > _REPLY_SECONDS:
                self._drop(client)
        for each in list(self._workers.values()):
            late = now - each.since
            if each.is_busy and not each.client and late > _REPLY_SECONDS:
                each.signal(signal.SIGKILL)
            elif not each.is_busy and late > _SPARE_SECONDS and len(self._workers) > 1:
                self._end_worker(each)
        if not self._clients and now - self._needed > _IDLE_SECONDS:
            self._end()

    def _end(self) -> None:
        """No more clients; those that wait to be accepted find the connection closed, and do it themselves."""
        if not self._is_ending:
            self._is_ending = True
            self._poll.unregister(self._listener)
            self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):  # it went away, or there are too many descriptors
            connection, _ = self._listener.accept()
            if len(self._clients) >= _MOST_CLIENTS:
                connection.close()
                return
            self._clients[connection.fileno()] = ClientConnection(connection)
            self._poll.register(connection, select.POLLIN)

    def _read_client(self, client: ClientConnection) -> None:
        try:
            message, descriptors = wire.receive(client.connection)
        except (OSError, ValueError):
            message, descriptors = None, []
        try:
            self._handle(client, message or {}, descriptors)
        finally:
            wire.close_all(descriptors)

    def _handle(self, client: ClientConnection, message: wire.Message, descriptors: list[int]) -> None:
        match message:
            case {"do": "ask"} if not client.worker:
                self._assign(client)
            case {"do": "run", "proof": str(proof)} if client.worker and client.is_proof(proof):
                client.has_sent = True
                client.worker.send({"do": "run"}, tuple(descriptors))
            case {"do": "go"} if client.worker and client.has_sent and not client.is_running:
                client.is_running = True
                client.worker.served += 1
                self._served += 1
                client.worker.send({"do": "go"})
            case {"do": "signal", "number": int(number)} if client.worker and client.has_sent and number in _FORWARDED:
                client.worker.signal(number)
            case {"do": "status"}:
                client.send(self._status())
            case {"do": "stop"}:
                self._end()
                client.send(self._status())
            case _:
                self._drop(client)

    def _status(self) -> wire.Message:
        runs = sum(client.is_running for client in self._clients.values())
        seconds = time.monotonic() - self._begun
        return {
            "process": os.getpid(),
            "version": __version__,
            "seconds": seconds,
            "workers": [each.process for each in self._workers.values()],
            "runs": runs,
            "served": self._served,
        }

    def _assign(self, client: ClientConnection) -> None:
        """Gives the client a worker that is free, or a new one, before there is any descriptor that it could keep."""
        self._needed = time.monotonic()
        try:
            check_client(client.connection)
        except ClientRefusedError as error:
            self._refuse(client, str(error))
            return
        if self._code.has_changed():
            self._refuse(client, "the keeper's code has changed on the disk")
            self._end()
            return
        found = self._free_worker()
        proof = client.make_proof()
        if found is None or proof is None:
            self._refuse(client, "all workers are busy")
            return
        found.client, found.is_busy, client.worker = client, True, found
        client.send({"yes": proof})

    def _free_worker(self) -> Worker | None:
        free = [each for each in self._workers.values() if not each.is_busy and each.served < _MOST_RUNS]
        if free:
            return max(free, key=lambda each: each.since)
        with suppress(OSError):  # the user has as many processes as allowed
            return self.start_worker() if len(self._workers) < _MOST_WORKERS else None
        return None

    def _refuse(self, client: ClientConnection, reason: str) -> None:
        client.send({"no": reason})
        self._drop(client)

    def _drop(self, client: ClientConnection) -> None:
        """A client that is gone, or is not served any more. Its run, if it has one, is cancelled."""
        self._forget(client)
        if client.worker is None:
            return
        client.worker.client, client.worker.since = None, time.monotonic()
        if not client.has_sent:
            client.worker.is_busy = False
        elif client.is_running:
            # The first ends the program's patience, the second its life; it may have been stopped.
            client.worker.signal(signal.SIGHUP, signal.SIGTERM, signal.SIGCONT)
        else:
            client.worker.send({"do": "nothing"})

    def _forget(self, client: ClientConnection) -> None:
        self._clients.pop(client.connection.fileno())
        self._poll.unregister(client.connection)
        client.connection.close()
        client.forget_proof()
        self._needed = time.monotonic()

    def _read_worker(self, each: Worker) -> None:
        try:
            message, _ = wire.receive(each.channel)
        except OSError:
            message = None
        match message:
            case None:
                self._remove_worker(each)
            case {"ready": True}:
                if each.client:
                    each.client.send(message)
            case _:
                self._finish_run(each, message)

    def _finish_run(self, each: Worker, answer: wire.Message) -> None:
        """Passes the last answer on to the client; the worker is free."""
        each.signal(signal.SIGCONT)  # the client may have stopped it at the very end
        each.is_busy, each.since = False, time.monotonic()
        client, each.client = each.client, None
        if client:
            client.worker = None
            client.send(answer)
            self._forget(client)
        if each.served >= _MOST_RUNS:
            self.start_worker(is_warm=True)
            self._end_worker(each)

    def _end_worker(self, each: Worker) -> None:
        """It ends when it finds its channel closed; it has no run."""
        each.channel.shutdown(socket.SHUT_WR)

    def _remove_worker(self, each: Worker) -> None:
        """Once it has ended. A client that it had finds its connection closed."""
        del self._workers[each.channel.fileno()]
        self._poll.unregister(each.channel)
        each.channel.close()
        each.signal(signal.SIGKILL)
        os.waitpid(each.process, 0)
        if each.client:
            each.client.worker = None
            self._drop(each.client)
