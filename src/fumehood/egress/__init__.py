"""The only way out of a sandbox: a gateway on the host that knows names, ports, protocols, methods and paths.

Owns what happens between a connection that a program inside made and the server it is meant for. What may happen is
decided by `fumehood.policy.egress`; how connections come out of a sandbox is the backends' matter, and neither knows
the other.

    gateway = Gateway()                      one for a process; one thread, made with the first sandbox
    way = gateway.admit(policy, "box_1")     one sandbox: way.ports, way.trust, way.environment(path)
    visit = way.visit("run_1")               one run: visit.listen(sockets), visit.serve(connection, destination)
    visit.end()                              closes all, returns what was refused

    visit        listeners, and who serves which destination     stub      DNS, which asks nobody
    proxy        CONNECT, SOCKS5, plain requests                  tunnel    one host and port: raw, TLS, requests
    exchange     request by request                               dialling  resolve, check, connect to what was checked
    relay        bytes that nobody looks at                       hello, http1, dns   parsers without I/O
"""

import atexit
import os
from functools import cache

from fumehood.egress.gateway import Gateway
from fumehood.egress.limits import Limits
from fumehood.egress.proxy import PORT as PROXY_PORT
from fumehood.egress.resolution import Resolver
from fumehood.egress.run_egress import RunEgress
from fumehood.egress.sandbox_egress import SandboxEgress

__all__ = ["PROXY_PORT", "Gateway", "Limits", "Resolver", "RunEgress", "SandboxEgress", "shared_gateway"]


def shared_gateway() -> Gateway:
    """The one of this process, and of the roots that it trusts now. A forked child must not use its parent's."""
    return _gateway_of(os.getpid(), *(os.environ.get(name) for name in ("SSL_CERT_FILE", "SSL_CERT_DIR")))


@cache
def _gateway_of(process: int, *_trust: str | None) -> Gateway:
    made = Gateway()
    atexit.register(_close_own, made, process)
    return made


def _close_own(made: Gateway, process: int) -> None:
    if os.getpid() == process:
        made.close()
