"""Everything that can be wrong with an engine, made wrong for real: one clear error each, with what to do."""

from __future__ import annotations

import gc
import os
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import engine
import pytest
from live.relays import relay_to
from live.second_engine import SPACE_BYTES, SecondEngine, make_certificates, open_second_engine
from live.traces import descendants, wait_until
from requirements import require
from unit.images.archives import file, link, write_archive

from fumehood import FumehoodError, Policy, Sandbox, UsageError
from fumehood.backends.docker.ssh import ssh_argv
from fumehood.images import Recipe, build_image, list_images
from fumehood.sandbox.async_sandbox import sandboxed_installer

AS_NOBODY = """
import os, sys
from fumehood import FumehoodError, Policy, Sandbox

def refusal(host):
    try:
        Sandbox(Policy(backend="docker", docker={"host": host})).__enter__()
    except FumehoodError as error:
        return str(error)

refusal("unix:///nowhere")  # loads what nobody may read
os.setgroups([]); os.setgid(65534); os.setuid(65534)
print(refusal(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    require(engine.missing() is None, engine.missing() or "")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", engine.use())
        yield engine.folder()


@pytest.fixture(scope="module")
def second(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecondEngine]:
    require(shutil.which("openssl"), "needs openssl")
    with open_second_engine(tmp_path_factory.mktemp("second")) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    """Handshakes that fail leave transports to the garbage collector, and other tests are not to hear of that."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def refusal(**section: str) -> str:
    with pytest.raises(FumehoodError) as refused, Sandbox(Policy(backend="docker", docker=section)):
        pytest.fail("it opened")
    return str(refused.value)


def certificates(folder: Path, client: str | None = "client", authority: str = "ca") -> dict[str, str]:
    own = {"tls_cert": f"{folder}/{client}.pem", "tls_key": f"{folder}/{client}.key"} if client else {}
    return {"tls_ca": f"{folder}/{authority}.pem", **own}


def test_an_engine_that_lets_nobody_in_says_what_to_do(place: Path) -> None:
    """Another user, and a socket that only root may use."""
    with socket.socket(socket.AF_UNIX) as closed:
        path = Path(f"/tmp/fumehood-test-{os.getpid()}.sock")
        closed.bind(str(path))
        path.chmod(0o600)
        closed.listen()
        try:
            said = subprocess.run(
                [sys.executable, "-c", AS_NOBODY, f"unix://{path}"],
                check=False,
                capture_output=True,
                text=True,
                env={**os.environ, "FUMEHOOD_AUDIT": "off", "FUMEHOOD_LOGIN": "/nowhere/login.json"},
            )
        finally:
            path.unlink()
    assert "no permission to use the Docker engine" in said.stdout, said.stderr
    assert "usermod -aG docker" in said.stdout


def test_a_port_where_nobody_listens_is_told_as_such() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    said = refusal(host=f"tcp://127.0.0.1:{port}")
    assert f"no Docker engine answers at tcp://127.0.0.1:{port}. Check the address" in said


def test_an_engine_takes_those_who_have_a_certificate_of_its_authority(second: SecondEngine) -> None:
    """It is reached; what is missing then is an image."""
    assert "image 'fumehood:latest' is not on the engine at tcp://" in refusal(
        host=second.remote, **certificates(second.folder)
    )


def test_an_engine_that_wants_a_certificate_says_so(second: SecondEngine) -> None:
    for client in (None, "stranger"):
        said = refusal(host=second.remote, **certificates(second.folder, client))
        assert "does not accept our certificate, or wants one" in said
        assert "docker.tls_cert" in said


def test_an_engine_whose_certificate_cannot_be_trusted_is_not_spoken_to(second: SecondEngine) -> None:
    said = refusal(host=second.remote, **certificates(second.folder, authority="other-ca"))
    assert "shows a certificate that is not to be trusted" in said
    assert "docker.tls_ca" in said


def test_tls_on_one_side_alone_is_told_as_such(second: SecondEngine, tmp_path: Path) -> None:
    assert "speaks TLS: set docker.tls_ca" in refusal(host=second.remote)
    with plain_server() as port:
        said = refusal(host=f"tcp://127.0.0.1:{port}", **certificates(second.folder))
    assert "speaks no TLS" in said


def test_certificates_that_are_not_there_are_one_clear_error(tmp_path: Path) -> None:
    said = refusal(host="tcp://127.0.0.1:1", tls_ca=str(tmp_path / "nothing.pem"))
    assert "docker.tls_*: a certificate or key cannot be used" in said


def test_a_sandbox_works_over_tls(place: Path, tmp_path: Path) -> None:
    require(shutil.which("openssl"), "needs openssl")
    make_certificates(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=tmp_path / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    with relay_to(place / "engine.sock", context) as port:
        section = {"host": f"tcp://127.0.0.1:{port}", **certificates(tmp_path)}
        with Sandbox(Policy(backend="docker", docker=section)) as box:
            box.files.write("file", b"x" * 300_000)
            assert box.run("import os; print(os.stat('file').st_size)").stdout == "300000\n"


def test_a_disk_that_is_full_is_told_as_such(second: SecondEngine, tmp_path: Path) -> None:
    """By whoever builds an image there, and by whoever opens a sandbox."""
    content = os.urandom(SPACE_BYTES // 4)
    entries = [link("usr/bin/python3", "python3.11"), file("usr/bin/python3.11"), file("usr/lib/large", content)]
    done = second.docker("import", str(write_archive(tmp_path / "root.tar", *entries)), "fumehood:latest")
    assert done.returncode == 0, done.stderr
    engine_of = Policy(docker={"host": second.local})
    filler = second.data / "filler"
    filler.write_bytes(b"x" * (SPACE_BYTES // 2))
    try:
        with pytest.raises(FumehoodError, match=r"no space left on its disk. Free some"):
            build_image(Recipe.of(engine_of, name="never:1", base="fumehood:latest"), sandboxed_installer())
        with pytest.raises(OSError, match="No space left"):
            filler.write_bytes(bytes(SPACE_BYTES))
        assert "no space left on its disk. Free some" in refusal(host=second.local)
    finally:
        filler.unlink()
    assert list_images(engine_of) == []
    assert second.docker("ps", "--all", "--quiet").stdout == ""


@contextmanager
def plain_server() -> Iterator[int]:
    """Answers whatever it is sent with words of HTTP."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            while True:
                try:
                    caller, _ = server.accept()
                except OSError:
                    return
                with caller:
                    caller.recv(4096)
                    caller.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.fixture
def ssh_host(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A real server on this machine that lets one key in, and whose users have the tests' engine."""
    server = shutil.which("sshd", path="/usr/sbin:/usr/bin")
    require(server and shutil.which("ssh"), "needs openssh-server and openssh-client")
    assert server is not None
    for name in ("host", "user", "stranger"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / name], check=True)
    shutil.copy(tmp_path / "user.pub", tmp_path / "authorized")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = f"""
        Port {port}
        ListenAddress 127.0.0.1
        HostKey {tmp_path}/host
        AuthorizedKeysFile {tmp_path}/authorized
        PidFile none
        StrictModes no
        UsePAM no
        PasswordAuthentication no
        PermitRootLogin prohibit-password
        SetEnv DOCKER_HOST={engine.address(place)} PATH={os.environ["PATH"]}
    """
    (tmp_path / "sshd").write_text(settings)
    key = (tmp_path / "host.pub").read_text().split()
    (tmp_path / "known").write_text(f"[127.0.0.1]:{port} {key[0]} {key[1]}\n")
    # The client's settings come from a file of the test's own, by way of a command of the same name.
    (tmp_path / "client").write_text(f"Host *\n  IdentityFile {tmp_path}/user\n  UserKnownHostsFile {tmp_path}/known\n")
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "ssh"
    command.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {tmp_path}/client "$@"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    Path("/run/sshd").mkdir(exist_ok=True)
    daemon = subprocess.Popen([server, "-D", "-e", "-f", tmp_path / "sshd"], stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: _answers(port), 20, "it answers")
        yield f"ssh://root@127.0.0.1:{port}"
    finally:
        daemon.terminate()
        daemon.wait()


def _answers(port: int) -> bool:
    with socket.socket() as line:
        return line.connect_ex(("127.0.0.1", port)) == 0


def test_an_engine_is_reached_over_ssh_and_no_ssh_is_left(ssh_host: str) -> None:
    program = (
        "import sys\nfrom fumehood import Policy, Sandbox\n"
        "with Sandbox(Policy(backend='docker', docker={'host': sys.argv[1]})) as box:\n"
        "    box.files.write('file', b'x' * 300_000)\n"
        "    print(box.run('import os; print(os.stat(\"file\").st_size)').stdout, end='')\n"
        "print('closed', flush=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, ssh_host], check=False, capture_output=True, text=True)
    assert done.stdout == "300000\nclosed\n", done.stderr
    assert not [pid for pid in descendants(os.getpid()) if b"dial-stdio" in _command(pid)]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_a_host_that_does_not_take_our_key_is_told_in_the_words_of_ssh(ssh_host: str, tmp_path: Path) -> None:
    shutil.copy(tmp_path / "stranger.pub", tmp_path / "authorized")
    said = refusal(host=ssh_host)
    assert "ssh says" in said
    assert "Permission denied (publickey" in said
    assert "BatchMode=yes root@127.0.0.1" in said


@pytest.mark.parametrize(
    "host",
    [
        "ssh://-oProxyCommand=touch%20x",
        "ssh://user@-oProxyCommand=x",
        "ssh://-l@host",
        "ssh://user:secret@host",
        "ssh://host/path",
        "ssh://a$(id)@host",
    ],
)
def test_no_part_of_an_address_is_an_option_of_ssh(host: str) -> None:
    with pytest.raises(UsageError, match=r"must be ssh://user@host:port"):
        ssh_argv(host)
