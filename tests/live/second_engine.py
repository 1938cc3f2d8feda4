"""Another Docker engine, small and short-lived: little space, and a port that speaks TLS and wants a certificate."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from live.traces import wait_until

SPACE_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class SecondEngine:
    folder: Path
    port: int

    @property
    def local(self) -> str:
        return f"unix://{self.folder}/engine.sock"

    @property
    def remote(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def docker(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["docker", "--host", self.local, *arguments], check=False, capture_output=True, text=True)


@contextmanager
def open_second_engine(folder: Path) -> Iterator[SecondEngine]:
    make_certificates(folder)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    second = SecondEngine(folder, port)
    second.data.mkdir()
    (folder / "daemon.json").write_text("{}")
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SPACE_BYTES}", "small", second.data], check=True)
    command = [
        "dockerd",
        "--config-file",
        folder / "daemon.json",
        "--data-root",
        second.data,
        "--exec-root",
        folder / "exec",
    ]
    command += ["--pidfile", folder / "pid", "--iptables=false", "--bridge=none", "--host", second.local]
    command += ["--host", second.remote, "--tlsverify", "--tlscacert", folder / "ca.pem"]
    command += ["--tlscert", folder / "server.pem", "--tlskey", folder / "server.key"]
    with (folder / "log").open("wb") as log:
        daemon = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wait_until(lambda: second.docker("version").returncode == 0 or daemon.poll() is not None, 60, "it answers")
        assert daemon.poll() is None, (folder / "log").read_text()[-2000:]
        yield second
    finally:
        daemon.terminate()
        daemon.wait(30)
        subprocess.run(["umount", "--recursive", "--lazy", second.data], check=True)


def make_certificates(folder: Path) -> None:
    """An authority, a server and a client of its; another authority with a client of the same name."""
    for authority in ("ca", "other-ca"):
        _openssl("req", "-x509", *_NEW, "-subj", f"/CN={authority}", "-days", "2", *_files(folder, authority))
    for name, authority in (("server", "ca"), ("client", "ca"), ("stranger", "other-ca")):
        usage = "serverAuth" if name == "server" else "clientAuth"
        extensions = f"subjectAltName=IP:127.0.0.1\nextendedKeyUsage={usage}\n"
        (folder / f"{name}.ext").write_text(extensions)
        request = str(folder / f"{name}.csr")
        _openssl("req", *_NEW, "-subj", f"/CN={name}", "-out", request, "-keyout", str(folder / f"{name}.key"))
        signing = ["-CA", f"{folder}/{authority}.pem", "-CAkey", f"{folder}/{authority}.key", "-CAcreateserial"]
        signing += ["-extfile", f"{folder}/{name}.ext", "-days", "2"]
        _openssl("x509", "-req", "-in", request, "-out", f"{folder}/{name}.pem", *signing)


_NEW = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def _files(folder: Path, name: str) -> list[str]:
    return ["-out", f"{folder}/{name}.pem", "-keyout", f"{folder}/{name}.key"]


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
