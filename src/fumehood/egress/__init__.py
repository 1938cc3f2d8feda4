"""The egress gateway: the only way out of a sandbox, on the host, which knows names, ports, protocols and requests.

Owns what happens between a connection that a program inside made and the server it is meant for. What may happen is
decided by `fumehood.policy.egress`; how connections come out of a sandbox is the backends' part.

    gateway = Gateway()                          one for a process; one thread, started with the first sandbox
    sandbox = gateway.admit(policy, "box_1")     SandboxEgress: sandbox.ports, sandbox.trust, sandbox.environment(path)
    run = sandbox.open_run("run_1")              RunEgress: run.listen(sockets), run.serve(connection, destination)
    run.end()                                    closes all its connections, returns what was refused

One request: listeners (run_egress) -> connection -> proxy or tunnel -> rules -> dial -> exchange -> log.

    run_egress   listeners and connections of a run               dns       the name server, which sends no queries
    connections  how many there may be, what each is given        learn_mode  in place of a tunnel: nothing goes out
    rules        the rules as they are now, asked for a run       relay     bytes that are not inspected
    proxy        CONNECT, SOCKS5, plain requests                  tunnel    one host and port: raw, TLS, requests
    exchange     request by request                               dial      resolve, check, connect to what was checked
    limits       quotas, and how much waits for slow readers
    client_hello, http1, websocket, packet_monitor                parsers
"""

import atexit
import os
import ssl
from functools import cache

from fumehood.concurrency.process import ProcessKey, process_key
from fumehood.egress.dial import Resolver
from fumehood.egress.gateway import Gateway
from fumehood.egress.limits import GatewayLimits
from fumehood.egress.proxy import PORT as PROXY_PORT
from fumehood.egress.run_egress import RunEgress
from fumehood.egress.sandbox_egress import SandboxEgress

__all__ = ["PROXY_PORT", "Gateway", "GatewayLimits", "Resolver", "RunEgress", "SandboxEgress", "shared_gateway"]


_Roots = tuple[tuple[object, ...] | None, ...]
_MOST_IDLE = 4
_gateways: dict[tuple[ProcessKey, _Roots], Gateway] = {}
"""By process, because a forked child must not use its parent's, and by the roots that are trusted."""


def shared_gateway() -> Gateway:
    """The one of this process, and of the roots that it trusts now."""
    key = process_key(), _roots()
    if key not in _gateways:
        made = Gateway()
        if _gateways.setdefault(key, made) is made:
            _close_at_exit(process_key())
            _close_idle(made)
    return _gateways[key]


def _roots() -> _Roots:
    """The files of the roots as they are now: variables name others, and the same name can be another file's."""
    paths = ssl.get_default_verify_paths()
    return tuple(map(_identity, (paths.cafile, paths.capath)))


def _identity(path: str | None) -> tuple[object, ...] | None:
    try:
        found = os.stat(path) if path else None
    except OSError:
        return None
    return (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size) if found else None


def _close_idle(newest: Gateway) -> None:
    """A process that lives long and whose roots change often keeps the last few."""
    idle = [
        key
        for key, each in list(_gateways.items())
        if key[0] == process_key() and each is not newest and not each.sandboxes and not each.ports
    ]
    for key in idle[: max(0, len(idle) - _MOST_IDLE)]:
        _gateways.pop(key).close()


@cache
def _close_at_exit(process: ProcessKey) -> None:
    atexit.register(_close_own, process)


def _close_own(process: ProcessKey) -> None:
    if process_key() == process:
        for (owner, _), each in list(_gateways.items()):
            if owner == process:
                each.close()
