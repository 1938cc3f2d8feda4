"""Reaching the server behind a route: find its addresses, check each, connect to exactly one that was checked."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Sequence
from ipaddress import ip_address

from fumehood.egress.refusal import RefusedError, UnreachableError
from fumehood.egress.resolution import Resolver
from fumehood.policy.decision import Decision
from fumehood.policy.egress import Address, Attempt, Route, Rulebook
from fumehood.policy.hosts import endpoint, is_address

_MOST_ADDRESSES = 4


async def dial(
    route: Route, book: Rulebook, resolve: Resolver, seconds: float, on_allowed: Callable[[], None]
) -> socket.socket:
    """A connection to the route's server, or why there is none. `on_allowed` is called before anything is sent."""
    place = endpoint(route.host, route.port)
    try:
        async with asyncio.timeout(seconds):
            found = [ip_address(route.host)] if is_address(route.host) else await resolve(route.host)
            addresses = _allowed(found, route, book)
            on_allowed()
            return await _connect_first(addresses, route, seconds)
    except TimeoutError:
        raise UnreachableError(f"{place} does not answer") from None
    except OSError as error:
        reason = "no answer" if error.errno is None else os.strerror(error.errno)
        raise UnreachableError(f"{place} cannot be reached: {reason}") from None


def _allowed(found: Sequence[Address], route: Route, book: Rulebook) -> list[Address]:
    decisions = [(address, _decide(address, route, book)) for address in found]
    allowed = [address for address, decision in decisions if decision.allowed]
    if allowed:
        return allowed[:_MOST_ADDRESSES]
    if decisions:
        raise RefusedError(decisions[0][1])
    raise UnreachableError(f"{route.host} has no address")


def _decide(address: Address, route: Route, book: Rulebook) -> Decision[Attempt]:
    decision = book.decide_address(route, address)
    if decision.allowed and _is_own(address, route.port):
        return book.decide_own_address(route, address)
    return decision


def _is_own(address: Address, port: int) -> bool:
    """Whether this machine has that address itself: the route to it then begins where it ends. Sends nothing."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((str(address), port))
        except OSError:
            return False
        return ip_address(probe.getsockname()[0]) == address


async def _connect_first(addresses: Sequence[Address], route: Route, seconds: float) -> socket.socket:
    """The first that answers; each has its share of the time, the last all that is left."""
    for address in addresses[:-1]:
        with contextlib.suppress(OSError):
            async with asyncio.timeout(seconds / len(addresses)):
                return await _connect(address, route.port)
    return await _connect(addresses[-1], route.port)


async def _connect(address: Address, port: int) -> socket.socket:
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    connection = socket.socket(family, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(connection, (str(address), port))
    except BaseException:
        connection.close()
        raise
    return connection
