"""Trials of the way out: network rules and secrets, with a server of the trial's own on the host's loopback.

Hosts that a policy names are not contacted; what is tried is the gateway between them and the sandbox.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fumehood.egress.certificates import CertificateAuthority
from fumehood.proof.laboratory import HostListener, Laboratory, attempts, variables
from fumehood.proof.program import SEARCH_MEMORY, require_success, turned_around
from fumehood.proof.trial import BrokenError, Trial, attack, use

_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"
_ROOTS = "SSL_CERT_FILE"


@attack("network.allow", "Reach a name and an address that no rule allows, directly and through the gateway's proxy.")
async def reach_what_is_not_allowed(lab: Laboratory) -> str:
    async with HostListener(_ANSWER) as listener:
        tried = await lab.attempts(_REACH, port=listener.port, name=f"{lab.mark}.invalid")
        if listener.received:
            raise BrokenError(f"a server of the host was reached: {tried}")
    through = {name: answer for name, answer in tried.items() if " 200 " in answer}
    if through or set(tried) != _WAYS:
        raise BrokenError(f"not refused: {through or tried}")
    return "; ".join(f"{name}: {answer}" for name, answer in tried.items())


_WAYS = {"address by the proxy", "address by CONNECT", "name by the proxy", "name by CONNECT", "address directly"}
_REACH = """
def ask(line, host):
    proxy = os.environ["http_proxy"].removeprefix("http://").split(":")
    with socket.create_connection((proxy[0], int(proxy[1])), timeout=5) as one:
        one.sendall(f"{line} HTTP/1.1\\r\\nHost: {host}\\r\\nConnection: close\\r\\n\\r\\n".encode())
        return one.recv(100).split(b"\\r\\n")[0]

attempt("address by the proxy", lambda: ask(f"GET http://127.0.0.1:{port}/", f"127.0.0.1:{port}"))
attempt("address by CONNECT", lambda: ask(f"CONNECT 127.0.0.1:{port}", f"127.0.0.1:{port}"))
attempt("name by the proxy", lambda: ask(f"GET http://{name}/", name))
attempt("name by CONNECT", lambda: ask(f"CONNECT {name}:443", f"{name}:443"))
attempt("address directly", lambda: socket.create_connection(("127.0.0.1", port), timeout=2).recv(5))
"""


@attack("network.allow", "Send a request with another method, and one to another path, than the rule of a host allows.")
async def ask_what_is_not_allowed(lab: Laboratory) -> str:
    async with HostListener(_ANSWER) as listener:
        rule = {"host": "localhost", "ports": [listener.port], "protocol": "http", "private": True}
        narrowed = {**rule, "methods": ["GET"], "paths": ["/open/**"]}
        async with lab.sandbox({"network": {"allow": [narrowed]}, "secrets": []}) as box:
            tried = await attempts(box, _ASK, port=listener.port)
    reached = [request.split(b" HTTP")[0].decode("latin-1") for request in listener.received]
    if reached != ["GET /open/x"] or "200" not in tried.get("allowed", ""):
        raise BrokenError(f"the server got {reached}; the program saw {tried}")
    return "; ".join(f"{name}: {answer.removeprefix('got: ')}" for name, answer in tried.items())


_ASK = """
def ask(method, path):
    with socket.create_connection(("127.0.0.1", port), timeout=5) as one:
        lines = (f"{method} {path} HTTP/1.1", f"Host: localhost:{port}", "Connection: close", "", "")
        one.sendall("\\r\\n".join(lines).encode())
        return one.recv(100).split(b"\\r\\n")[0]

attempt("another method", lambda: ask("POST", "/open/x"))
attempt("another path", lambda: ask("GET", "/closed"))
attempt("a path that leads there", lambda: ask("GET", "/open/../closed"))
attempt("allowed", lambda: ask("GET", "/open/x"))
"""


@use("network.allow", "Reach a server that a rule allows.")
async def reach_what_is_allowed(lab: Laboratory) -> str:
    async with HostListener(_ANSWER) as listener:
        rule = {"host": "localhost", "ports": [listener.port], "protocol": "http", "private": True}
        async with lab.sandbox({"network": {"allow": [rule]}, "secrets": []}) as box:
            tried = await attempts(box, _FETCH, url=f"http://localhost:{listener.port}/")
    require_success(tried, ["request"])
    if "hello" not in tried["request"]:
        raise BrokenError(tried["request"])
    return "with one rule for a server of the trial's own in place of the policy's rules"


_FETCH = """
import urllib.request
attempt("request", lambda: urllib.request.urlopen(url, timeout=10).read())
"""


@attack("secrets", "Look for a secret's value in variables, files and the whole memory of the program.")
async def find_a_secret(lab: Laboratory) -> str:
    value = secrets.token_hex(24)
    async with HostListener(_ANSWER) as listener:
        with _secret_file(lab, value) as path:
            async with lab.sandbox(_with_secret(listener.port, path)) as box:
                tried = await attempts(box, SEARCH_MEMORY + _SEARCH, **turned_around(value.encode()))
    if found := {name: answer for name, answer in tried.items() if answer != "got: False"}:
        raise BrokenError(f"found: {found}")
    return "in none of: " + ", ".join(tried)


_SEARCH = """
def in_file(path):
    try:
        return os.path.isfile(path) and holds(open(path, "rb").read(1 << 20))
    except OSError:
        return False

def in_files():
    tops = ("/run", "/etc", "/tmp", "/workspace")
    return any(in_file(os.path.join(place, name)) for top in tops for place, _, names in os.walk(top) for name in names)

attempt("variables", lambda: holds(repr(dict(os.environ)).encode()))
attempt("files", in_files)
attempt("memory", in_memory)
"""


@use("secrets", "Make a request that gets the secret at the gateway.")
async def use_a_secret(lab: Laboratory) -> str:
    value = secrets.token_hex(24)
    authority = CertificateAuthority()
    async with HostListener(_ANSWER, tls=authority.context("localhost")) as listener:
        with _secret_file(lab, value) as path, _trusted(lab, authority):
            async with lab.sandbox(_with_secret(listener.port, path)) as box:
                tried = await attempts(box, _FETCH, url=f"https://localhost:{listener.port}/")
    received = listener.received[0] if listener.received else b""
    if f"Bearer {value}".encode() not in received:
        raise BrokenError(f"the server did not get it; the program saw {tried}")
    return "the server got it, and the program's request had none"


def _with_secret(port: int, path: Path) -> dict[str, Any]:
    rule = {"host": "localhost", "ports": [port], "protocol": "tls", "private": True}
    secret = {"name": "HOOD_PROVE", "from_file": str(path), "inject": {"host": "localhost"}}
    return {"network": {"allow": [rule]}, "secrets": [secret]}


@contextmanager
def _secret_file(lab: Laboratory, value: str) -> Iterator[Path]:
    path = lab.folder / "secret"
    path.touch(mode=0o600)
    path.write_text(value, encoding="ascii")
    try:
        yield path
    finally:
        path.unlink()


@contextmanager
def _trusted(lab: Laboratory, authority: CertificateAuthority) -> Iterator[None]:
    """The gateway trusts the roots that the process trusts at the time."""
    path = lab.folder / "roots.pem"
    path.write_bytes(authority.pem)
    with variables({_ROOTS: str(path)}):
        yield


TRIALS: tuple[Trial, ...] = (
    reach_what_is_not_allowed,
    ask_what_is_not_allowed,
    reach_what_is_allowed,
    find_a_secret,
    use_a_secret,
)
