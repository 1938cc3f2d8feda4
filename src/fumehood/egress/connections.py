"""The connections of sandboxes: how many there may be, what each is given, and which one ends for the sake of others.

Used in the gateway's thread alone.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable, Mapping

from fumehood.egress.connection import Connection, Destination, Service
from fumehood.egress.dial import Dialer
from fumehood.egress.limits import GatewayLimits, SandboxMemory
from fumehood.egress.log import EgressLog
from fumehood.egress.relay import RelayBuffer
from fumehood.egress.rules import RunRules


class GatewayConnections:
    """The connections of all sandboxes together."""

    def __init__(self, most: int) -> None:
        self.most, self.count = most, 0
        self.sandboxes: set[SandboxConnections] = set()

    def has_room_for(self, sandbox: SandboxConnections) -> bool:
        """Whether a sandbox may have one more.

        When there are no more, one that has less than its share gets a connection of the one that has most. Tenants
        share first, however many sandboxes each has, and then the sandboxes of one tenant.
        """
        if self.count < self.most:
            return True
        used = self._used()
        greediest = max(self.sandboxes, key=lambda each: (used[each.party], each.count), default=sandbox)
        if sandbox.party == greediest.party:
            has_less = sandbox.count + 1 < greediest.count
        else:
            has_less = used[sandbox.party] + 1 < used[greediest.party]
        return has_less and greediest.give_up_one()

    def _used(self) -> Counter[object]:
        used = Counter[object]()
        for each in self.sandboxes:
            used[each.party] += each.count
        return used


class SandboxConnections:
    """The connections of one sandbox. `services` serve destinations of their own, `service` all others."""

    def __init__(
        self,
        everyone: GatewayConnections,
        limits: GatewayLimits,
        memory: SandboxMemory,
        buffer: RelayBuffer,
        dialer: Dialer | None,
        services: Mapping[Destination, Service],
        service: Service,
        *,
        tenant: str = "",
    ) -> None:
        self._everyone, self._limits, self._memory, self._buffer, self._dialer = (
            everyone,
            limits,
            memory,
            buffer,
            dialer,
        )
        self._services, self._service = services, service
        self.party: object = tenant or self
        """Shares with others: a tenant, or a sandbox without one."""
        self._open: set[Connection] = set()
        # No sandbox may take what all have to share.
        self._most = min(limits.connections, everyone.most // 2)

    @property
    def count(self) -> int:
        return len(self._open)

    @property
    def open(self) -> list[Connection]:
        return list(self._open)

    def why_full(self) -> str:
        """Why there can be no further connection, or nothing."""
        if self.count >= self._most:
            return f"the sandbox has {self._most} connections already, which is the most it may"
        if not self._everyone.has_room_for(self):
            return "all sandboxes together have as many connections as this process may (ulimit -n)"
        return ""

    def start(
        self,
        near: socket.socket,
        destination: Destination,
        rules: RunRules,
        log: EgressLog,
        on_end: Callable[[Connection], None],
    ) -> Connection:
        """Serves a connection that a program has made to an address and port inside."""

        def end(connection: Connection) -> None:
            self._open.discard(connection)
            self._everyone.count -= 1
            on_end(connection)

        connection = Connection(
            near,
            rules=rules,
            log=log,
            limits=self._limits,
            dialer=self._dialer,
            memory=self._memory,
            buffer=self._buffer,
            on_end=end,
        )
        self._open.add(connection)
        self._everyone.count += 1
        connection.start(self._services.get(destination, self._service), destination)
        return connection

    def give_up_one(self) -> bool:
        """Ends the connection that has not moved for longest, for another sandbox's sake."""
        left = [connection for connection in self._open if not connection.is_ending]
        if left:
            connection = max(left, key=lambda each: each.idle_seconds)
            connection.give_up("other sandboxes need connections too, and this one has the most (ulimit -n)")
        return bool(left)

    def end_idle(self) -> None:
        """Ends what has not moved for too long."""
        for connection in self.open:
            if connection.idle_seconds > self._limits.idle_seconds:
                connection.abort()
