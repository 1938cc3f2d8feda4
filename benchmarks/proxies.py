"""Proxies that people use for what the gateway does, if they are installed here; started for the measurement alone."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

_START_SECONDS = 30


class Proxy(NamedTuple):
    port: int
    trust: str | None
    """Whom its clients have to trust, when it shows certificates of its own."""


def mitmproxy(folder: Path, stack: ExitStack) -> Proxy | None:
    """Reads every request, as the gateway does where a rule is about requests."""
    found = shutil.which("mitmdump")
    if found is None:
        return None
    port, home = _free_port(), folder / "mitmproxy"
    settings = {
        "confdir": str(home),
        "ssl_verify_upstream_trusted_ca": str(folder / "root.pem"),
        "http2": "false",
    }
    command = [found, "--quiet", "--listen-host", "127.0.0.1", "--listen-port", str(port)]
    command += [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    trust = home / "mitmproxy-ca-cert.pem"
    return Proxy(port, str(trust)) if _start(command, port, stack) and trust.exists() else None


def squid(folder: Path, stack: ExitStack) -> Proxy | None:
    """Passes CONNECT through and looks into nothing."""
    found = shutil.which("squid", path="/usr/sbin:/usr/bin:/usr/local/sbin")
    if found is None:
        return None
    port, settings = _free_port(), folder / "squid.conf"
    lines = [
        f"http_port 127.0.0.1:{port}",
        "acl all_connect method CONNECT",
        "http_access allow all_connect",
        "http_access deny all",
        "cache deny all",
        "access_log none",
        "cache_log /dev/null",
        f"pid_filename {folder}/squid.pid",
        "pinger_enable off",
    ]
    settings.write_text("\n".join(lines) + "\n")
    settings.chmod(0o644)
    return Proxy(port, None) if _start([found, "-N", "-f", str(settings)], port, stack) else None


def _start(command: list[str], port: int, stack: ExitStack) -> bool:
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    stack.callback(process.wait)
    stack.callback(process.kill)
    for _ in range(_START_SECONDS * 10):
        if process.poll() is not None:
            return False
        with socket.socket() as line:
            if line.connect_ex(("127.0.0.1", port)) == 0:
                return True
        time.sleep(0.1)
    return False


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as line:
        return line.getsockname()[1]
