"""A PostgreSQL of the tests' own: Debian's, in a folder of its own, reached through a socket file and nothing else."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from requirements import require

PROGRAMS = next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)), None)
_numbers = count(1)


class PostgresServer:
    def __init__(self, folder: Path, account: dict[str, object]) -> None:
        self._folder, self._account = folder, account

    def start(self) -> None:
        self._control("start", "-o", f"-k {self._folder} -c listen_addresses= -F", "-l", str(self._folder / "log"))

    def stop(self) -> None:
        self._control("stop", "-m", "immediate")

    def kill(self) -> None:
        """All of its processes, by SIGKILL."""
        leader = int((self._folder / "data" / "postmaster.pid").read_text().splitlines()[0])
        group = os.getpgid(leader)
        os.killpg(group, signal.SIGKILL)

    def create_database(self) -> str:
        """The address of a new, empty one."""
        name = f"hood{next(_numbers)}"
        self.execute(f"CREATE DATABASE {name}", "postgres")
        return self.url(name)

    def execute(self, statement: str, database: str) -> None:
        """As the owner of everything."""
        import psycopg

        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute(statement.encode())

    def url(self, database: str) -> str:
        return f"postgresql://owner@/{database}?host={self._folder}"

    def _control(self, *words: str) -> None:
        assert PROGRAMS is not None
        command = [str(PROGRAMS / "pg_ctl"), "-w", "-D", str(self._folder / "data"), *words]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd="/", **self._account)


@contextmanager
def running() -> Iterator[PostgresServer]:
    """It does not run as root, so root starts it as its own user."""
    require(PROGRAMS, "needs postgresql")
    assert PROGRAMS is not None
    folder = Path(tempfile.mkdtemp(prefix="hood-postgres-", dir="/var/tmp"))
    account: dict[str, object] = {}
    if os.geteuid() == 0:
        user = pwd.getpwnam("postgres")
        os.chown(folder, user.pw_uid, user.pw_gid)
        account = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    server = PostgresServer(folder, account)
    initdb = [str(PROGRAMS / "initdb"), "-D", str(folder / "data"), "-A", "trust", "-U", "owner", "--no-sync"]
    try:
        subprocess.run(initdb, check=True, stdout=subprocess.DEVNULL, cwd="/", **account)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder)
