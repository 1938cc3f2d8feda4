"""The egress gateway: the only way out of a sandbox, on the host, which knows names, ports, protocols and requests.

Owns what happens between a connection that a program inside made and the server it is meant for. What may happen is
decided by `fumehood.policy.egress`; how connections come out of a sandbox is the backends' part.

    gateway = Gateway()                          one for a process; one thread, started with the first sandbox
    sandbox = gateway.admit(policy, "box_1")     SandboxEgress: sandbox.ports, sandbox.trust, sandbox.environment(path)
    run = sandbox.open_run("run_1")              RunEgress: run.listen(sockets), run.serve(connection, destination)
    run.end()                                    closes all its connections, returns what was refused

One request: listeners (run_egress) -> connection -> proxy or tunnel -> decision -> dial -> exchange -> log.

    run_egress   listeners, and what serves which destination    dns       the name server, which sends no queries
    proxy        CONNECT, SOCKS5, plain requests                  tunnel    one host and port: raw, TLS, requests
    exchange     request by request                               dial      resolve, check, connect to what was checked
    relay        bytes that are not inspected                     memory    how much waits for slow readers
    client_hello, http1, websocket, packet_monitor                parsers
"""

import atexit
import os
from functools import cache

from fumehood.egress.dial import Resolver
from fumehood.egress.gateway import Gateway
from fumehood.egress.limits import GatewayLimits
from fumehood.egress.proxy import PORT as PROXY_PORT
from fumehood.egress.run_egress import RunEgress
from fumehood.egress.sandbox_egress import SandboxEgress

__all__ = ["PROXY_PORT", "Gateway", "GatewayLimits", "Resolver", "RunEgress", "SandboxEgress", "shared_gateway"]


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
