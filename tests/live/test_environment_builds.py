"""An installation has a sandbox around it: what a hostile index, wheel or installer can reach is its index."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from live.package_index import PackageIndex, make_wheel, open_index
from upstreams import CertificateAuthority

from fumehood import DeniedError, FumehoodError, Policy, Sandbox, run
from fumehood.audit import AuditLog, Query
from fumehood.environments import EnvironmentStore
from fumehood.errors import StepFailedError
from fumehood.host.interpreter import own_interpreter

GREETER = make_wheel("greeter", {"greeter.py": "def main():\n    print('hello')\n"})
InstallerOf = Callable[[str], None]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FUMEHOOD_HOME", str(tmp_path / "hood"))
    return tmp_path / "hood" / "environments"


@pytest.fixture
def installer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InstallerOf:
    """Another program in the place of uv's: one that somebody has tampered with."""

    def write(program: str) -> None:
        file = tmp_path / "uv"
        file.write_text(f"#!{own_interpreter().executable} -IS\n{program}")
        file.chmod(0o755)
        monkeypatch.setattr("fumehood.environments.installer.find_uv", lambda: str(file))

    return write


def policy_for(index: PackageIndex) -> Policy:
    return Policy(environment={"packages": ["greeter"], "index": index.url})


def test_an_installer_sees_nothing_of_the_host(
    installer: InstallerOf, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary = tmp_path / "canary"
    canary.write_text("of the host")
    canary.chmod(0o644)
    monkeypatch.setenv("CANARY", "of the host")
    installer(f"""
import os
def attempt(act):
    try:
        return repr(act())
    except OSError as error:
        return error.strerror
with open("/opt/build/packages/found.txt", "w") as file:
    for path in ({str(canary)!r}, "/etc/shadow", "/opt/installer/uv"):
        print(attempt(lambda: open(path).read(2)), file=file)
    print(attempt(lambda: open("/opt/installer/uv", "a")), file=file)
    print(attempt(lambda: open("/opt/installer/asked.txt", "a")), file=file)
    print(attempt(lambda: os.listdir({str(home)!r})), file=file)
    print(os.environ.get("CANARY"), sorted(os.listdir("/opt")), os.listdir("/workspace"), file=file)
""")
    with open_index(GREETER) as index, Sandbox(policy_for(index)):
        pass
    (environment,) = EnvironmentStore(home).list()
    assert (environment.folder / "found.txt").read_text().splitlines() == [
        "No such file or directory",
        "No such file or directory",
        "'#!'",
        "Read-only file system",
        "Read-only file system",
        "No such file or directory",
        "None ['build', 'installer'] []",
    ]


def test_an_installer_reaches_its_index_and_nobody_else(installer: InstallerOf, home: Path) -> None:
    told: list[str] = []
    with open_index(GREETER) as index, open_index(GREETER) as other:
        installer(f"""
import socket, urllib.request
def attempt(act):
    try:
        return act()
    except OSError as error:
        return "refused"
found = [
    attempt(lambda: urllib.request.urlopen({index.url!r} + "/greeter/").status),
    attempt(lambda: urllib.request.urlopen({other.url!r} + "/greeter/").status),
    attempt(lambda: socket.create_connection(("127.0.0.1", {other.server_address[1]}), 5).close()),
    attempt(lambda: socket.getaddrinfo("elsewhere.example", 443)),
]
open("/opt/build/packages/found.txt", "w").write(repr(found))
""")
        with Sandbox(policy_for(index), progress=told.append):
            pass
        assert other.paths == []
    (environment,) = EnvironmentStore(home).list()
    assert (environment.folder / "found.txt").read_text() == "[200, 'refused', 'refused', 'refused']"
    assert any(line.startswith("refused: dns elsewhere.example") for line in told)


@pytest.mark.parametrize(
    "trick",
    [
        "import shutil; shutil.rmtree(packages); os.symlink(victim, packages)",
        "os.symlink(victim, packages + '/greeter')",
        "os.symlink('/dev/zero', packages + '/METADATA')",
    ],
)
def test_links_that_an_installer_leaves_are_not_followed(
    installer: InstallerOf, home: Path, tmp_path: Path, trick: str
) -> None:
    victim = tmp_path / "victim"
    victim.mkdir(mode=0o755)
    (victim / ".lock").touch()
    installer(f"import os\npackages, victim = '/opt/build/packages', {str(victim)!r}\n{trick}\n")
    with open_index(GREETER) as index, pytest.raises(DeniedError, match=r"symbolic link|something else"):
        run("pass", policy_for(index))
    assert (victim / ".lock").exists()
    assert stat.S_IMODE(victim.stat().st_mode) == 0o755
    assert list(home.iterdir()) == []


class Redirecting(BaseHTTPRequestHandler):
    """Sends everybody somewhere else."""

    destination: str

    def do_GET(self) -> None:
        self.send_response(302)
        self.send_header("Location", self.destination + self.path)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


def test_an_index_that_redirects_to_another_host_is_told_of(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    with open_index() as index:
        index.RequestHandlerClass = type("Handler", (Redirecting,), {"destination": "http://elsewhere.example"})
        with pytest.raises(DeniedError, match=r"was refused: \w+ elsewhere.example"):
            run("pass", policy_for(index))
    assert list(home.iterdir()) == []


def test_an_index_that_redirects_to_another_port_of_this_machine_leads_nowhere(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    with open_index(GREETER) as other, open_index() as index:
        destination = other.url.removesuffix("/simple")
        index.RequestHandlerClass = type("Handler", (Redirecting,), {"destination": destination})
        with pytest.raises(FumehoodError, match="Failed to fetch"):
            run("pass", policy_for(index))
        assert other.paths == []
    assert list(home.iterdir()) == []


@pytest.mark.parametrize("place", ["http://elsewhere.example", "https://elsewhere.example"])
def test_links_of_an_index_without_tls_open_no_other_host(
    home: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Anybody on the way could have written them."""
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    with open_index() as index:
        link = f'<a href="{place}/{GREETER[0]}">{GREETER[0]}</a>'.encode()
        monkeypatch.setattr(index, "answer", lambda path: link)
        with pytest.raises(DeniedError, match=r"was refused: \w+ elsewhere.example"):
            run("pass", policy_for(index))
    assert list(home.iterdir()) == []


def test_a_wheel_that_climbs_out_of_its_folder_stays_in_it(home: Path, tmp_path: Path) -> None:
    climbing = make_wheel("greeter", {"../climbed.py": "", "../../../climbed.py": "", "/opt/build/climbed.py": ""})
    with open_index(climbing) as index, suppress(FumehoodError), Sandbox(policy_for(index)):
        (environment,) = EnvironmentStore(home).list()
        assert not list(environment.folder.parent.glob("climbed.py"))
    assert not [path for path in tmp_path.rglob("climbed.py") if "packages" not in path.parts]


class Guarded(BaseHTTPRequestHandler):
    """Over TLS, for those who know the password."""

    server: PackageIndex

    def do_GET(self) -> None:
        known = self.headers.get("Authorization") == "Basic " + b64encode(b"me:hunter2").decode()
        content = self.server.answer(self.path) if known else None
        self.send_response(200 if content is not None else 401)
        self.send_header("Content-Type", "text/html" if self.path.startswith("/simple/") else "application/zip")
        self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()
        self.wfile.write(content or b"")

    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


def hood_build(index: str, authority: CertificateAuthority, folder: Path) -> subprocess.CompletedProcess[str]:
    """In a process of its own, whose gateway trusts this authority."""
    (folder / "policy.yaml").write_text(f"environment: {{packages: [greeter], index: '{index}'}}\n")
    return subprocess.run(
        [sys.executable, "-m", "fumehood", "env", "build", "--policy", str(folder / "policy.yaml")],
        env={**os.environ, "SSL_CERT_FILE": str(authority.bundle), "UV_HTTP_RETRIES": "0"},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(("login", "code"), [("me:hunter2@", 0), ("", 1)])
def test_a_password_is_sent_by_the_gateway(tmp_path: Path, login: str, code: int) -> None:
    authority = CertificateAuthority(tmp_path)
    with open_index(GREETER) as index:
        index.RequestHandlerClass = Guarded
        index.socket = authority.context("127.0.0.1").wrap_socket(index.socket, server_side=True)
        built = hood_build(f"https://{login}127.0.0.1:{index.server_address[1]}/simple", authority, tmp_path)
    assert (built.returncode != 0) == (code != 0), built.stderr
    assert "hunter2" not in built.stderr


@pytest.mark.parametrize(("host", "is_open"), [("localhost", True), ("127.0.0.1", False)])
def test_files_may_be_at_another_host_that_the_index_names_but_at_no_address(
    tmp_path: Path, host: str, is_open: bool
) -> None:
    authority = CertificateAuthority(tmp_path)
    with open_index(GREETER) as files, open_index() as index:
        for server, name in ((files, host), (index, "localhost")):
            server.socket = authority.context(name).wrap_socket(server.socket, server_side=True)
        wheel = f"https://{host}:{files.server_address[1]}/files/{GREETER[0]}"
        index.answer = lambda path: f'<a href="{wheel}">{GREETER[0]}</a><a href="https://*/x">x</a>'.encode()
        built = hood_build(f"https://localhost:{index.server_address[1]}/simple", authority, tmp_path)
        assert (built.returncode == 0) == is_open, built.stderr
        assert bool(files.paths) == is_open


def test_an_installer_that_fills_the_disk_is_ended(
    installer: InstallerOf, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fumehood.sandbox.sandboxed_installer._MOST_BYTES", 2**20)
    installer("""
import time
open("/opt/build/packages/large", "wb").write(bytes(2**22))
time.sleep(60)
""")
    with open_index(GREETER) as index, pytest.raises(StepFailedError, match="more than 1M of disk"):
        run("pass", policy_for(index))
    assert list(home.iterdir()) == []


def test_a_build_is_recorded_like_any_run(tmp_path: Path) -> None:
    with open_index(GREETER) as index, Sandbox(policy_for(index), audit=tmp_path / "log"):
        kinds = [record.kind for record in AuditLog.at(tmp_path / "log").find(Query())]
    assert "egress.allowed" in kinds
    assert [kind for kind in kinds if not kind.startswith(("log.", "egress."))] == [
        "sandbox.opened",
        "run.requested",
        "run.started",
        "run.finished",
        "sandbox.closed",
        "sandbox.opened",
    ]
