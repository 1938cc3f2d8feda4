"""The loopbacks of sandboxes whose runs share one: network namespaces that are open as long as the sandbox is.

The first run of a sandbox is in a namespace of its own, which becomes the sandbox's; later ones are born in it. No
process inside can enter another one, and the host reaches a port by a socket that is made in it and passed out.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from contextlib import suppress

from ..contract import wire
from ..isolation.listeners import connector
from ..isolation.steps import StepError
from .supervision import Run


class Loopbacks:
    """By workspace. Where runs do not share one, there is none, and any standby fits any sandbox."""

    def __init__(self, are_shared: bool) -> None:
        self._are_shared = are_shared
        self._namespaces: dict[int, int] = {}

    def find(self, workspace: int | None) -> int | None:
        return None if workspace is None else self._namespaces.get(workspace)

    def fits(self, run: Run, workspace: int) -> bool:
        """Whether a standby can run in this sandbox: in its loopback, or as the first with its own."""
        if not self._are_shared:
            return True
        return run.loopback_of == workspace or (run.loopback_of is None and workspace not in self._namespaces)

    def adopt(self, run: Run, workspace: int) -> None:
        """The run is this sandbox's from here on."""
        if self._are_shared and run.loopback_of is None:
            self._namespaces[workspace] = run.open_loopback()
            run.loopback_of = workspace

    def next_workspace(self, standbys: Sequence[Run], waiting: Sequence[int], last: int | None) -> int | None:
        """The sandbox that the next standby is for: the first that waits for one, else the one that was used last.

        None for one that has no loopback yet, whichever that will be.
        """
        left = list(standbys)
        for workspace in waiting if self._are_shared else ():
            fitting = next((run for run in left if self.fits(run, workspace)), None)
            if fitting is None:
                return workspace if workspace in self._namespaces else None
            left.remove(fitting)
        return last if last in self._namespaces else None

    def reach(self, message: wire.Message, reply: int, own_namespace: int) -> None:
        """Answers with a socket that can connect to ports of a sandbox, or without one if it had no run yet."""
        namespace = self._namespaces.get(message["workspace"])
        family = socket.AF_INET6 if message["version"] == 6 else socket.AF_INET
        with wire.packet_socket(reply) as line, suppress(OSError, StepError):  # the host has given up, or gets none
            if namespace is None:
                wire.send(line, {"reached": False})
                return
            with connector(namespace, own_namespace, family) as made:
                wire.send(line, {"reached": True}, (made.fileno(),))

    def close(self, workspace: int) -> None:
        """Its runs have ended; the kernel removes the namespace with its last socket."""
        namespace = self._namespaces.pop(workspace, None)
        if namespace is not None:
            os.close(namespace)
