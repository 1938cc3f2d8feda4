"""`hood serve` as a process of the tests' own, which can be killed: with HTTP, the channel and E2B's protocol."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import sqlite3
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from live.loaded_hood import start_interpreter, start_python
from live.traces import wait_until

from fumehood.audit.inspection import check, open_store
from fumehood.audit.location import DATABASE
from fumehood.audit.records import Record
from fumehood.audit.store import Query
from fumehood.server.identity.keys import create_key, e2b_spelling
from fumehood.server.identity.principals import OF_TENANTS
from fumehood.server.storage.choice import open_database
from fumehood.server.tenants.catalogue import put_policy
from fumehood.server.tenants.quotas import Quota, set_limit
from fumehood.server.tenants.tenants import create_tenant

_LISTENING = re.compile(r"listening at (\S+), for E2B's SDKs at (\S+)")
_PLENTY = 1e14
_SECONDS_TO_START = 60.0
_LAUNCHER = Path(__file__).with_name("server_launcher.py")


@dataclass(frozen=True)
class TenantKeys:
    """Two keys of one tenant: one that asks, and one that may answer what the first has asked for."""

    name: str
    own: str
    second: str

    @property
    def e2b(self) -> str:
        return e2b_spelling(self.own)


@dataclass(frozen=True)
class ServerProcess:
    process: subprocess.Popen[bytes]
    url: str
    e2b_url: str

    @property
    def pid(self) -> int:
        return self.process.pid

    def client(self, key: str, seconds: float = 30) -> httpx.Client:
        return httpx.Client(
            base_url=f"{self.url}/v1", headers={"Authorization": f"Bearer {key}"}, timeout=seconds, verify=False
        )

    def is_ready(self) -> bool:
        return httpx.get(f"{self.url}/v1/health/ready", timeout=30).status_code == 200

    def e2b_options(self, key: str) -> dict[str, Any]:
        """For `Sandbox.create` of E2B's SDK."""
        return {"api_key": key, "api_url": self.e2b_url, "sandbox_url": self.e2b_url}


@dataclass(frozen=True)
class ServerFolder:
    """What a server keeps, over many lives of it."""

    state: Path
    database: str
    ports: tuple[int, int]
    """The same in each life, so that clients find it again."""

    @classmethod
    def at(cls, state: Path, database: str | None = None) -> ServerFolder:
        state.mkdir(mode=0o700, exist_ok=True)
        return cls(state, database or f"sqlite:///{state}/server.db", (_free_port(), _free_port()))

    def add_tenant(self, name: str, policies: Mapping[str, str] | None = None, **limits: float) -> TenantKeys:
        """While no server runs that has the database for itself. Quotas are without end but for `limits`."""
        return asyncio.run(self._add_tenant(name, policies or {}, limits))

    async def _add_tenant(self, name: str, policies: Mapping[str, str], limits: Mapping[str, float]) -> TenantKeys:
        database = open_database(self.database)
        try:
            await database.prepare()
            await create_tenant(database, name, "tests")
            for quota in Quota:
                await set_limit(database, name, quota, limits.get(quota.value, _PLENTY), "tests")
            for each, text in policies.items():
                await put_policy(database, name, each, text, "tests")
            keys = [(await create_key(database, name, "tests", OF_TENANTS))[0] for _ in range(2)]
        finally:
            await database.close()
        return TenantKeys(name, *keys)

    @contextmanager
    def served(
        self,
        settings: Mapping[str, object] | None = None,
        variables: Mapping[str, str] | None = None,
        *,
        from_nothing: bool = False,
    ) -> Iterator[ServerProcess]:
        """Killed at the end, if it still lives.

        One whose memory is measured starts from nothing: a fork has all that it writes to from then on as its own.
        """
        start = start_interpreter if from_nothing else start_python
        with self._started(settings, variables, start) as process:
            yield ServerProcess(process, *self._addresses(process))

    @contextmanager
    def _started(
        self,
        settings: Mapping[str, object] | None,
        variables: Mapping[str, str] | None,
        start: Callable[..., subprocess.Popen[bytes]],
    ) -> Iterator[subprocess.Popen[bytes]]:
        file = self.state.parent / f"{self.state.name}.json"
        listen, e2b = (f"127.0.0.1:{port}" for port in self.ports)
        own = {"listen": listen, "e2b": e2b, "state": str(self.state), "database": self.database}
        file.write_text(json.dumps({**own, **(settings or {})}))
        command = (str(_LAUNCHER), "serve", "--config", str(file))
        variables = {**os.environ, **(variables or {})}
        self._keep_log()
        with self.log.open("w") as log, start(*command, stdout=log, stderr=log, env=variables) as process:
            try:
                yield process
            finally:
                process.kill()

    def killed_after(self, seconds: float, settings: Mapping[str, object] | None = None) -> None:
        """A life that is over so soon after its start, most often before it listens."""
        with self._started(settings, None, start_python) as process, suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
            raise AssertionError(f"the server did not start: {self.log.read_text()}")

    @property
    def log(self) -> Path:
        """What the server of this life has said."""
        return self.state.parent / f"{self.state.name}.log"

    @property
    def earlier_log(self) -> Path:
        """What those before it have said."""
        return self.log.with_suffix(".earlier")

    def _keep_log(self) -> None:
        if self.log.exists():
            with self.earlier_log.open("ab") as earlier:
                earlier.write(self.log.read_bytes())

    def _addresses(self, process: subprocess.Popen[bytes]) -> tuple[str, str]:
        def said() -> re.Match[str] | None:
            assert process.poll() is None, f"the server did not start: {self.log.read_text()}"
            return _LISTENING.search(self.log.read_text())

        wait_until(said, _SECONDS_TO_START, "the server listens")
        found = said()
        assert found is not None
        return found[1], found[2]

    def rows(self) -> list[tuple[str, str, str | None, str | None]]:
        """Tenant, id, instance, and cause of the end of each sandbox."""
        statement = "SELECT tenant, id, instance, cause FROM sandboxes"
        if self.database.startswith("postgresql:"):
            import psycopg

            with psycopg.connect(self.database) as connection:
                return connection.execute(statement).fetchall()
        with closing(sqlite3.connect(self.database.removeprefix("sqlite:///"))) as connection:
            return connection.execute(statement).fetchall()

    def records(self, tenant: str) -> list[Record]:
        with closing(open_store(self._log(tenant))) as store:
            return list(store.find(Query()))

    def check_audit(self, tenant: str) -> None:
        """Every record is as it was written, every sandbox and every run has one end."""
        if not self._has_log(tenant):
            return  # nothing was done for it so far
        assert check(self._log(tenant), None).problems == ()
        ends: dict[str, list[str]] = {}
        for record in self.records(tenant):
            subject = record.run_id or record.sandbox_id or ""
            if record.kind in ("run.requested", "sandbox.opened"):
                ends[subject] = []
            elif record.kind in ("run.finished", "run.broke", "sandbox.closed", "sandbox.lost"):
                ends.setdefault(subject, []).append(record.kind)
        assert {subject: kinds for subject, kinds in ends.items() if len(kinds) != 1} == {}

    def _has_log(self, tenant: str) -> bool:
        """A server that was killed may have left a file without tables, which the next one makes when it needs them."""
        path = self._log(tenant) / DATABASE
        if not path.exists():
            return False
        with closing(sqlite3.connect(path)) as connection:
            return connection.execute("PRAGMA user_version").fetchone() != (0,)

    def _log(self, tenant: str) -> Path:
        return self.state / "tenants" / tenant / "audit"


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]
