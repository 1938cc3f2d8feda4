"""A Docker engine of the tests' own: started once for all who test at the same time, ended when the last is gone.

Whoever uses it holds a shared lock, which the kernel takes back however they end. A keeper process starts the daemon
and waits for the lock as its only holder; then nobody is left, and it ends the daemon and itself. What the daemon keeps
on disk stays in the cache folder: making the image takes a minute, and is done again only when its maker has changed.

Run as a program, `python tests/engine.py keep FOLDER` is the keeper, and `python tests/engine.py with COMMAND...` runs
a command that finds the engine as DOCKER_HOST; where there can be none, without.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

IMAGE = "fumehood:latest"
COMPONENTS = ("dockerd", "docker", "runsc", "mmdebstrap")
BACKENDS = ("docker", "gvisor")
# One of each kind; the toolchains of the others would be most of the image.
LANGUAGES = ("c", "c++", "javascript")
_MAKER = Path(__file__).parent.parent / "src" / "fumehood" / "images"
_RUNTIMES = {"runsc": {"path": "/usr/bin/runsc", "runtimeArgs": ["--platform=ptrace", "--network=none"]}}
# Called like gVisor's and another: by its name in the engine, and by that of its program.
IMPOSTORS = ("runsc-by-name", "program-by-name")
_START_SECONDS = 60
_STOP_SECONDS = 20


def missing() -> str | None:
    """Why there can be none here."""
    if os.geteuid() != 0:
        return "a Docker engine of one's own needs root"
    absent = [name for name in COMPONENTS if shutil.which(name) is None]
    return f"needs {', '.join(absent)} (apt-get install docker.io runsc mmdebstrap)" if absent else None


def folder() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "fumehood" / "test-engine"


def address(place: Path) -> str:
    return f"unix://{place / 'engine.sock'}"


def use() -> str:
    """Start it if nobody has, and hold it as long as this process lives. Returns its address."""
    place = folder()
    place.mkdir(parents=True, exist_ok=True)
    # Never closed: that is what says that we are still here.
    users = os.open(place / "users.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with _locked(place / "start.lock"):
        # While a keeper is winding up this waits, and then there is no daemon any more.
        fcntl.flock(users, fcntl.LOCK_SH)
        if not answers(place):
            _start_keeper(place)
        _make_image(place)
    return address(place)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def answers(place: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as line:
        try:
            line.settimeout(5)
            line.connect(str(place / "engine.sock"))
            line.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
            return line.recv(64).startswith(b"HTTP/1.0 200")
        except OSError:
            return False


def _start_keeper(place: Path) -> None:
    with open(place / "keeper.log", "wb") as log:
        keeper = subprocess.Popen(
            [sys.executable, __file__, "keep", str(place)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    for _ in range(_START_SECONDS * 20):
        if keeper.poll() is not None:
            break
        if answers(place):
            keeper.returncode = 0  # nobody waits for it: it ends after us
            return
        time.sleep(0.05)
    raise RuntimeError(f"no Docker engine: {(place / 'keeper.log').read_text(errors='replace')[-2000:]}")


def docker(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["docker", "--host", address(place), *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def _make_image(place: Path) -> None:
    """With the same command that users have, unless the one that is there was made in the same way."""
    record = place / "image.json"
    known = json.loads(record.read_text()) if record.exists() else {}
    if known == {"recipe": _recipe(), "digest": _digest(place)}:
        return
    command = [sys.executable, "-m", "fumehood", "image", "build", "--name", IMAGE]
    command += [f"--language={language}" for language in LANGUAGES]
    environment = {**os.environ, "DOCKER_HOST": address(place), "PYTHONPATH": str(_MAKER.parent.parent)}
    before = _digest(place)
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    if before and before != _digest(place):
        docker(place, "image", "rm", before)
    record.write_text(json.dumps({"recipe": _recipe(), "digest": _digest(place)}))


def _recipe() -> str:
    """Of all that decides what is in the image, but for what is new in Debian."""
    sources = b"".join(path.read_bytes() for path in sorted(_MAKER.rglob("*.py")))
    return hashlib.sha256(repr((LANGUAGES, sources)).encode()).hexdigest()


def _digest(place: Path) -> str | None:
    found = docker(place, "image", "inspect", "--format", "{{.Id}}", IMAGE)
    return found.stdout.strip() if found.returncode == 0 else None


def start_daemon(place: Path, log: IO[bytes] | None = None) -> subprocess.Popen[bytes]:
    """One that ends with us."""
    (place / "daemon.json").write_text(json.dumps({"runtimes": {**_RUNTIMES, **_impostors(place)}}))
    command = ["dockerd", "--config-file", str(place / "daemon.json"), "--data-root", str(place / "data")]
    command += ["--exec-root", str(place / "exec"), "--pidfile", str(place / "engine.pid"), "--host", address(place)]
    command += ["--iptables=false", "--bridge=none"]
    (place / "engine.pid").unlink(missing_ok=True)
    return subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=_die_with_parent)


def _impostors(place: Path) -> dict[str, dict[str, str]]:
    program = place / "impostor" / "runsc"
    program.parent.mkdir(exist_ok=True)
    program.write_text('#!/bin/sh\nexec runc "$@"\n')
    program.chmod(0o755)
    return dict(zip(IMPOSTORS, ({"path": "runc"}, {"path": str(program)}), strict=True))


def keep(place: Path) -> None:
    """The keeper's whole life."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)  # containers inherit what a background job ignores
    daemon = start_daemon(place)
    signal.signal(signal.SIGTERM, lambda *_: None)
    users = os.open(place / "users.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(users, fcntl.LOCK_EX)
    daemon.terminate()
    try:
        daemon.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        daemon.kill()
    end_shims(place)


def end_shims(place: Path) -> None:
    """An engine forgets the keeper of a container that ends while the engine itself does."""
    for process in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        with suppress(OSError):
            words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
            if b"containerd-shim" in words[0] and os.fsencode(place / "exec/containerd/containerd.sock") in words:
                os.kill(process, signal.SIGKILL)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)


def main(verb: str, *words: str) -> int:
    if verb == "keep":
        keep(Path(words[0]))
        return 0
    if missing() is None:
        os.environ["DOCKER_HOST"] = use()
    return subprocess.run(words, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
