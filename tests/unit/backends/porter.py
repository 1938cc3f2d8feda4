"""An acceptor behind a sandbox's listeners: writes its destination to each connection, and echoes every query."""

from __future__ import annotations

import select
import socket
import threading

from fumehood.guest.contract import wire


class Porter:
    """An acceptor without a gateway. Ends with the last listener."""

    def __init__(self) -> None:
        self.listeners: list[socket.socket] = []
        self.seen: list[socket.socket] = []
        """Where copies of packets arrive that went where there is no listener."""
        self._threads: list[threading.Thread] = []
        self._over, self._close = socket.socketpair()

    def receive_listeners(self, channel: socket.socket) -> None:
        thread = threading.Thread(target=self._watch, args=(channel,))
        self._threads.append(thread)
        thread.start()

    def serve(self, connection: socket.socket, destination: tuple[str, int]) -> None:
        with connection:
            connection.sendall(f"{destination[0]}:{destination[1]}".encode())

    def answer(self, query: bytes) -> bytes | None:
        return b"echo " + query

    def end(self) -> None:
        self._close.close()
        for thread in self._threads:
            thread.join(10)
        for line in (*self.listeners, *self.seen, self._over):
            line.close()

    def _watch(self, channel: socket.socket) -> None:
        with channel:
            while True:
                ready, _, _ = select.select([self._over, channel, *self.listeners], [], [])
                if self._over in ready or (channel in ready and not self._take_listeners(channel)):
                    return
                for listener in set(ready) - {channel}:
                    self._attend(listener)

    def _take_listeners(self, channel: socket.socket) -> bool:
        message, descriptors = wire.receive(channel)
        self.listeners += [socket.socket(fileno=descriptor) for descriptor in descriptors]
        self.seen += [line for line in self.listeners if line.family == socket.AF_PACKET]
        self.listeners = [line for line in self.listeners if line not in self.seen]
        return message is not None

    def _attend(self, listener: socket.socket) -> None:
        if listener.type == socket.SOCK_DGRAM:
            query, asker = listener.recvfrom(4096)
            listener.sendto(b"echo " + query, asker)
        else:
            connection, _ = listener.accept()
            self.serve(connection, connection.getsockname())
