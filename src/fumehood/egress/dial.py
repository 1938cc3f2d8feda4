"""Connections to servers: resolve the name, check each address, connect to exactly one that was checked.

Names are resolved on the host by the host's own rules. The CA certificates for outbound TLS are the host's as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address

from fumehood.egress.limits import GatewayLimits, QuotaLease, Quotas
from fumehood.egress.log import EgressDeniedError, EgressLog, UnreachableError
from fumehood.egress.rules import SandboxRules
from fumehood.policy.decision import Decision, allow
from fumehood.policy.egress import Address, Attempt, Route, Rulebook
from fumehood.policy.hosts import endpoint, is_address
from fumehood.tenant import EgressMeter

# Where distributions keep all roots in one file, for a Python whose OpenSSL was built to look elsewhere.
_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


def host_context() -> ssl.SSLContext:
    """Verifies servers as any program on this machine would; `SSL_CERT_FILE` moves the roots, as everywhere."""
    context = ssl.create_default_context()
    if not context.get_ca_certs() and not os.environ.get("SSL_CERT_FILE"):
        for bundle in _BUNDLES:
            if os.path.exists(bundle):
                context.load_verify_locations(bundle)
                break
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def bundle(context: ssl.SSLContext) -> bytes:
    """The roots of a context as PEM."""
    return "".join(ssl.DER_cert_to_PEM_cert(root) for root in context.get_ca_certs(binary_form=True)).encode()


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


_MOST_ADDRESSES = 4


class Dialer:
    """Connects one sandbox to servers, by its rules and within its quotas. Lives in the gateway's thread."""

    def __init__(
        self, rules: SandboxRules, resolve: Resolver, limits: GatewayLimits, meter: EgressMeter | None = None
    ) -> None:
        self._rules, self._resolve, self._seconds = rules, resolve, limits.connect_seconds
        self._quotas = Quotas(meter)
        self._looking_up = asyncio.Semaphore(limits.look_ups)

    def enter(self, route: Route) -> QuotaLease:
        """Count a new connection towards the quotas of the rules and of the tenant, or refuse it."""
        return self._quotas.enter(route)

    async def dial(self, route: Route, log: EgressLog) -> socket.socket:
        """A connection to the route's server, or why there is none. It is in the log before anything is sent."""
        try:
            return await self._dial(route, log)
        except UnreachableError as error:
            log.fail(str(error))
            raise

    async def _dial(self, route: Route, log: EgressLog) -> socket.socket:
        place, book = endpoint(route.host, route.port), self._rules.book
        try:
            async with asyncio.timeout(self._seconds):
                found = [ip_address(route.host)] if is_address(route.host) else await self._addresses(route.host)
                addresses = _allowed(found, route, book)
                log.record(allow(Attempt("connect", route.host, route.port), route.key))
                return await _connect_first(addresses, route, self._seconds)
        except TimeoutError:
            raise UnreachableError(f"{place} does not answer") from None
        except OSError as error:
            reason = "no answer" if error.errno is None else os.strerror(error.errno)
            raise UnreachableError(f"{place} cannot be reached: {reason}") from None

    async def _addresses(self, name: str) -> Sequence[Address]:
        """The addresses of a name.

        A look-up whose caller has gone still counts until it is over, because it still occupies a thread that
        other sandboxes need too.
        """
        await self._looking_up.acquire()
        answer = asyncio.ensure_future(self._resolve(name))
        answer.add_done_callback(lambda _: self._looking_up.release())
        return await asyncio.shield(answer)


def _allowed(found: Sequence[Address], route: Route, book: Rulebook) -> list[Address]:
    decisions = [(address, _decide(address, route, book)) for address in found]
    allowed = [address for address, decision in decisions if decision.allowed]
    if allowed:
        return allowed[:_MOST_ADDRESSES]
    if decisions:
        raise EgressDeniedError(decisions[0][1])
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
