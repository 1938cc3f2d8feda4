"""Programs that people use, unmodified, going out through the gateway to real servers on this machine's loopback."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import sysconfig
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

import pytest
from live.package_index import make_wheel
from outside import using_gateway
from requirements import require
from upstreams import CertificateAuthority, Shelf, Web, serving
from websockets.sync.server import ServerConnection, serve

from fumehood import Policy, RunResult, Sandbox
from fumehood.policy.egress import Address

DIRECT = {"no_proxy": "*", "NO_PROXY": "*"}
WAYS = pytest.mark.parametrize("env", [{}, DIRECT], ids=["by proxy", "directly"])


@dataclass(frozen=True)
class World:
    box: Sandbox
    web: int
    files: int
    live: int
    database: int
    cache: int

    def run(self, *argv: str, env: dict[str, str] | None = None) -> RunResult:
        return self.box.run(argv=argv, env=env or {}, timeout=60)

    def python(self, code: str, env: dict[str, str] | None = None) -> RunResult:
        return self.box.run(code, env={"PYTHONPATH": "/libraries", **(env or {})}, timeout=60)


async def everything_is_here(name: str) -> Sequence[Address]:
    return [ip_address("127.0.0.1")]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/var/tmp")))
        folder.chmod(0o755)
        authority = CertificateAuthority(folder)
        web = Web(authority.context("web.example", "api.example"))
        shelf = Shelf(_shelf(folder / "shelf"), authority.context("files.example"))
        for server in (web, shelf):
            stack.enter_context(serving(server))
        live = stack.enter_context(websocket_echo(authority))
        database = stack.enter_context(postgres(folder)) if POSTGRES else 1
        cache = stack.enter_context(redis()) if shutil.which("redis-server") else 2
        stack.enter_context(using_gateway(everything_is_here, authority))
        box = stack.enter_context(Sandbox(_policy(web.port, shelf.port, live, database, cache)))
        yield World(box, web.port, shelf.port, live, database, cache)


def _policy(web: int, files: int, live: int, database: int, cache: int) -> Policy:
    tls = {"protocol": "tls", "private": True}
    return Policy(
        backend="native",
        # Without cgroups address space counts, of which the WebAssembly in Node's fetch reserves much.
        resources={"memory": "2G" if os.geteuid() == 0 else "32G", "timeout": "60s", "processes": 128},
        filesystem={"mounts": [{"source": sysconfig.get_path("purelib"), "target": "/libraries"}]},
        network={
            "allow": [
                {"host": "web.example", "ports": [web], **tls},
                {"host": "api.example", "ports": [web], **tls, "methods": ["GET"], "paths": ["/v1/**"]},
                {"host": "api.example", "ports": [web], **tls, "methods": ["POST"], "paths": ["/v1/upload"]},
                {"host": "live.example", "ports": [live], **tls, "methods": ["GET"], "websocket": True},
                {"host": "files.example", "ports": [files], **tls, "methods": ["GET", "HEAD"]},
                {"host": "db.example", "ports": [database], "private": True},
                {"host": "cache.example", "ports": [cache], "private": True},
            ]
        },
    )


def _shelf(folder: Path) -> Path:
    """A repository and a package index, as plain files."""
    name, wheel = make_wheel("traveller", {"traveller.py": "def main(): print('arrived')\n"})
    (folder / "simple" / "traveller").mkdir(parents=True)
    (folder / "simple" / "traveller" / "index.html").write_text(f'<a href="/{name}">{name}</a>')
    (folder / name).write_bytes(wheel)
    work = folder / "work"
    git = ["git", "-c", "user.name=n", "-c", "user.email=e@example.com", "-c", "init.defaultBranch=main"]
    subprocess.run([*git, "init", "-q", work], check=True)
    (work / "README").write_text("cloned\n")
    for command in (["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, "-C", work, *command], check=True)
    subprocess.run([*git, "clone", "-q", "--bare", work, folder / "repository.git"], check=True)
    subprocess.run([*git, "-C", folder / "repository.git", "update-server-info"], check=True)
    return folder


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@contextmanager
def websocket_echo(authority: CertificateAuthority) -> Iterator[int]:
    def echo(connection: ServerConnection) -> None:
        for message in connection:
            connection.send(message)

    with serve(echo, "127.0.0.1", 0, ssl=authority.context("live.example")) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.socket.getsockname()[1]
        finally:
            server.shutdown()
            thread.join()


POSTGRES = next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin"))), None)


@contextmanager
def postgres(folder: Path) -> Iterator[int]:
    """It does not run as root, so root starts it as its own user."""
    assert POSTGRES is not None
    data, port = folder / "postgres", _free_port()
    data.mkdir()
    user = pwd.getpwnam("postgres") if os.geteuid() == 0 else None
    if user:
        os.chown(data, user.pw_uid, user.pw_gid)
    account = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if user else {}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": "/"}
    subprocess.run(
        [POSTGRES / "initdb", "-D", data, "-A", "trust", "-U", "reader", "--no-sync"], check=True, **account, **quiet
    )
    command = [POSTGRES / "postgres", "-D", data, "-h", "127.0.0.1", "-p", str(port), "-k", "", "-F"]
    with _process(command, port, **account, **quiet):
        yield port


@contextmanager
def redis() -> Iterator[int]:
    port = _free_port()
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    with _process(command, port, stdout=subprocess.DEVNULL, cwd="/"):
        yield port


@contextmanager
def _process(command: Sequence[str | Path], port: int, **options: object) -> Iterator[None]:
    process = subprocess.Popen(command, **options)  # type: ignore[call-overload]
    try:
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert process.poll() is None, f"{command[0]} ended"
                time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(20)


def check(result: RunResult, expected: str) -> None:
    assert expected in result.stdout, result.stdout + result.stderr
    assert result.denials == ()


@WAYS
@pytest.mark.parametrize("host", ["web", "api"], ids=["passed through", "intercepted"])
def test_curl(world: World, host: str, env: dict[str, str]) -> None:
    require(shutil.which("curl"), "needs curl")
    check(world.run("curl", "-sS", f"https://{host}.example:{world.web}/v1/x", env=env), '"path": "/v1/x"')


@WAYS
@pytest.mark.parametrize("host", ["web", "api"], ids=["passed through", "intercepted"])
def test_wget(world: World, host: str, env: dict[str, str]) -> None:
    require(shutil.which("wget"), "needs wget")
    check(world.run("wget", "-qO-", f"https://{host}.example:{world.web}/v1/x", env=env), '"path": "/v1/x"')


@WAYS
def test_git(world: World, env: dict[str, str]) -> None:
    require(shutil.which("git"), "needs git")
    url = f"https://files.example:{world.files}/repository.git"
    script = f"rm -rf copy && git clone -q {url} copy && cat copy/README"
    check(world.run("sh", "-c", script, env=env), "cloned")


@WAYS
def test_pip(world: World, env: dict[str, str]) -> None:
    require(Path("/usr/lib/python3/dist-packages/pip").exists(), "needs python3-pip")
    index = f"https://files.example:{world.files}/simple"
    script = (
        f"/usr/bin/python3 -m pip install -q --no-cache-dir --target fresh --upgrade --index-url {index} traveller && "
        "PYTHONPATH=fresh python3 -c 'import traveller; traveller.main()'"
    )
    check(world.run("sh", "-c", script, env=env), "arrived")


PYTHON = {
    "urllib": "import urllib.request; print(urllib.request.urlopen(url).read().decode())",
    "requests": "import requests; print(requests.get(url, timeout=20).text)",
    "httpx": "import httpx; print(httpx.get(url).text)",
    "aiohttp": """
import aiohttp, asyncio
async def main():
    async with aiohttp.ClientSession(trust_env=True) as session, session.get(url) as answer:
        print(await answer.text())
asyncio.run(main())
""",
}


@WAYS
@pytest.mark.parametrize("host", ["web", "api"], ids=["passed through", "intercepted"])
@pytest.mark.parametrize("code", PYTHON.values(), ids=PYTHON)
def test_python(world: World, code: str, host: str, env: dict[str, str]) -> None:
    url = f"https://{host}.example:{world.web}/v1/x"
    check(world.python(f"url = {url!r}\n{code}", env), '"path": "/v1/x"')


WEBSOCKETS = {
    "websockets": """
from websockets.sync.client import connect
with connect(url) as live:
    live.send("spoken" * 10_000)
    print(len(live.recv()))
""",
    "aiohttp": """
import aiohttp, asyncio
async def main():
    async with aiohttp.ClientSession() as session, session.ws_connect(url) as live:
        await live.send_str("spoken" * 10_000)
        print(len(await live.receive_str()))
asyncio.run(main())
""",
}


@pytest.mark.parametrize("code", WEBSOCKETS.values(), ids=WEBSOCKETS)
def test_websockets(world: World, code: str) -> None:
    check(world.python(f"url = 'wss://live.example:{world.live}/'\n{code}", DIRECT), "60000")


@WAYS
def test_uploads(world: World, env: dict[str, str]) -> None:
    require(shutil.which("curl"), "needs curl")
    url = f"https://api.example:{world.web}/v1/upload"
    upload = f"curl -sS --data-binary @file {url}"
    check(world.run("sh", "-c", f"head -c 2000000 /dev/zero > file && {upload} {url}", env=env), '"body": 2000000}{')
    code = f"import requests\nwith requests.Session() as s: print([s.post({url!r}, b'x').json()['body'] for _ in 'ab'])"
    check(world.python(code, env), "[1, 1]")


@pytest.mark.parametrize("host", ["web", "api"], ids=["passed through", "intercepted"])
def test_node(world: World, host: str) -> None:
    require(Path("/usr/bin/node").exists(), "needs nodejs")
    code = f"fetch('https://{host}.example:{world.web}/v1/x').then(r => r.text()).then(console.log)"
    check(world.box.run(code, language="javascript", timeout=60), '"path":')


def test_psycopg_to_postgresql(world: World) -> None:
    require(POSTGRES, "needs postgresql")
    code = f"""
import psycopg
with psycopg.connect("host=db.example port={world.database} user=reader dbname=postgres") as connection:
    print(connection.execute("select string_agg(n::text, ',') from generate_series(1, 4) n").fetchone())
"""
    check(world.python(code), "('1,2,3,4',)")


def test_redis_cli_to_redis(world: World) -> None:
    require(shutil.which("redis-cli"), "needs redis-tools")
    client = f"redis-cli -h cache.example -p {world.cache}"
    check(world.run("sh", "-c", f"{client} set key value && {client} get key"), "OK\nvalue")


def test_a_client_that_is_refused_says_why(world: World) -> None:
    require(shutil.which("curl"), "needs curl")
    result = world.run("curl", "-sS", f"https://api.example:{world.web}/v2/x")
    assert "no rule allows this path" in result.stdout
    assert [denial.path for denial in result.denials] == ["/v2/x"]
