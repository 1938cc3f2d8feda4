"""Runs the contract and escape suites as an ordinary user when whoever starts it is root.

A temporary account is made, the suites run under it with nothing of root's left, and the account is removed whatever
happens. A process that outlives the suites fails the run. Paths that the user could not reach (an interpreter or a
clone below /root, say) are shown to it in a private mount namespace; nothing on the real disk changes its mode.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SUITES = ["tests/contract", "tests/escape"]
SECONDS_TO_DIE = 5
TRAVERSABLE, READABLE = 0o001, 0o005  # for others than owner and group


def main(argv: list[str]) -> int:
    if os.geteuid() != 0:
        print("tests/rootless.py: not root, so a plain `make test` is rootless already")
        return 0
    if argv[:1] == ["--in-namespace"]:
        return run_as_user(pwd.getpwnam(argv[1]), Path(argv[2]), argv[3:])
    for signum in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, lambda number, _frame: sys.exit(128 + number))
    with open_account() as (user, folder):
        print(f"tests/rootless.py: {' '.join(argv or SUITES)} as user {user.pw_name}, uid {user.pw_uid}", flush=True)
        unshare = ["unshare", "--mount", "--propagation", "private", "--", sys.executable, __file__, "--in-namespace"]
        status = subprocess.run([*unshare, user.pw_name, folder, *(argv or SUITES)]).returncode
        return report_survivors(user.pw_uid) or status


@contextmanager
def open_account() -> Iterator[tuple[pwd.struct_passwd, Path]]:
    """Make a user with a home of its own; remove its processes, account and files at the end."""
    for tool in ("useradd", "userdel", "unshare", "setpriv"):
        if shutil.which(tool) is None:
            sys.exit(f"tests/rootless.py: {tool} is missing: apt-get install passwd util-linux")
    name = f"hood-{secrets.token_hex(4)}"
    # Always below /tmp: root's own TMPDIR may be a place that the user cannot reach.
    folder = Path(tempfile.mkdtemp(prefix="hood-rootless-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        subprocess.run(["useradd", "--no-create-home", "--home-dir", folder / "home", name], check=True)
        user = pwd.getpwnam(name)
        make_home(folder / "home", user)
        yield user, folder
    finally:
        if name in {entry.pw_name for entry in pwd.getpwall()}:
            end_processes(pwd.getpwnam(name).pw_uid)
            subprocess.run(["userdel", name], check=True)
        shutil.rmtree(folder)


def make_home(home: Path, user: pwd.struct_passwd) -> None:
    for path in (home, home / "tmp"):
        path.mkdir(mode=0o700)
        os.chown(path, user.pw_uid, user.pw_gid)


def run_as_user(user: pwd.struct_passwd, folder: Path, suites: list[str]) -> int:
    """Inside the private mount namespace: open the way to the needed paths, give root up, run pytest."""
    show_paths([ROOT, Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()], stage=folder / "stage")
    become = [
        *("setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"),
        *("--inh-caps=-all", "--ambient-caps=-all", "env", "-i", *clean_environment(user)),
    ]
    probe = subprocess.run([*become, sys.executable, "-c", "import fumehood, pytest"], cwd=ROOT)
    if probe.returncode != 0:
        sys.exit(f"tests/rootless.py: an ordinary user cannot read {ROOT} or {sys.base_prefix}: clone with umask 022")
    pytest = [*become, "sh", "scripts/test", *suites]
    return subprocess.run(pytest, cwd=ROOT, stdin=subprocess.DEVNULL).returncode


def clean_environment(user: pwd.struct_passwd) -> list[str]:
    home = user.pw_dir
    kept = [f"{name}={os.environ[name]}" for name in ("CI", "TEST_WORKERS") if name in os.environ]
    extent = os.environ.get("PARAMETERS", "first")  # root's run has shown the others
    return [
        *(f"HOME={home}", f"TMPDIR={home}/tmp", f"USER={user.pw_name}", f"LOGNAME={user.pw_name}", "SHELL=/bin/sh"),
        *(f"PATH={sys.prefix}/bin:/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", "PYTHONDONTWRITEBYTECODE=1"),
        *(f"HYPOTHESIS_STORAGE_DIRECTORY={home}/.hypothesis", f"PARAMETERS={extent}", *kept),
    ]


def show_paths(paths: list[Path], *, stage: Path) -> None:
    """Make the paths reachable: cover each closed folder on the way with an empty open one and bind the paths back."""
    hidden: dict[Path, list[Path]] = {}
    for piece in (piece for path in paths for piece in open_pieces(path)):
        closed = [folder for folder in reversed(piece.parents) if not folder.stat().st_mode & TRAVERSABLE]
        if closed and not any(piece.is_relative_to(other) for other in hidden.get(closed[0], [])):
            hidden.setdefault(closed[0], []).append(piece)
    for number, (cover, pieces) in enumerate(hidden.items()):
        aside = [bind(piece, stage / f"{number}.{index}") for index, piece in enumerate(pieces)]
        mount("-t", "tmpfs", "-o", "mode=755,size=1M", "tmpfs", cover)
        for source, piece in zip(aside, pieces, strict=True):
            bind(source, piece)
            mount("-o", "remount,bind,ro", piece)


def open_pieces(path: Path) -> list[Path]:
    """The path itself, or what is in it when the folder is closed to others."""
    return [path] if path.stat().st_mode & READABLE == READABLE else sorted(path.iterdir())


def bind(source: Path, target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        target.mkdir()
    else:
        target.touch()
    mount("--bind", source, target)
    return target


def mount(*arguments: str | Path) -> None:
    subprocess.run(["mount", *arguments], check=True)


def processes_of(uid: int) -> dict[int, str]:
    """Living processes by pid; asks for the real uid, since the files of an undumpable process belong to root."""
    found: dict[int, str] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            lines = dict(line.split(":\t", 1) for line in (entry / "status").read_text().splitlines() if ":\t" in line)
        except (FileNotFoundError, ProcessLookupError):
            continue
        if lines["Uid"].split()[0] == str(uid) and not lines["State"].startswith("Z"):
            found[int(entry.name)] = lines["Name"]
    return found


def report_survivors(uid: int) -> int:
    """A suite that ends leaves no process behind; give the kernel a moment, then name what is left."""
    deadline = time.monotonic() + SECONDS_TO_DIE
    while (survivors := processes_of(uid)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for pid, command in survivors.items():
        print(f"tests/rootless.py: process {pid} outlived the suites: {command}", file=sys.stderr)
    return 1 if survivors else 0


def end_processes(uid: int) -> None:
    deadline = time.monotonic() + SECONDS_TO_DIE
    while (left := processes_of(uid)) and time.monotonic() < deadline:
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
