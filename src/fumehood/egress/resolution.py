"""From a name to addresses, on the host, by the host's own rules: its hosts file, its name servers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address

from fumehood.egress.refusal import UnreachableError
from fumehood.policy.egress import Address

Resolver = Callable[[str], Awaitable[Sequence[Address]]]
_THREADS = 64
_HOSTS = "/etc/hosts"


class HostResolver:
    """getaddrinfo in threads of its own, because it blocks for as long as name servers like."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="fumehood-names")

    async def __call__(self, name: str) -> Sequence[Address]:
        return await asyncio.get_running_loop().run_in_executor(self._threads, _look_up, name)


def _look_up(name: str) -> Sequence[Address]:
    try:
        found = socket.getaddrinfo(name if _is_in_hosts_file(name) else f"{name}.", None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise UnreachableError(f"{name} does not exist, or its name server does not answer") from None
    # An address with a scope belongs to one link of the host, which no program inside can have meant.
    texts = dict.fromkeys(str(entry[4][0]) for entry in found)
    return [ip_address(text) for text in texts if "%" not in text]


def _is_in_hosts_file(name: str) -> bool:
    """Names there have no final dot.

    Everywhere else it says that the name is whole: without it, one that does not exist would be looked for below the
    host's own domains (`search` in resolv.conf), and another server would answer to it.
    """
    try:
        with open(_HOSTS, encoding="utf-8", errors="replace") as file:
            return any(name.lower() in line.partition("#")[0].lower().split()[1:] for line in file)
    except OSError:
        return False
