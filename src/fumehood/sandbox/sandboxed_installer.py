"""Runs the package installer of an environment in a native sandbox, which sees the installer and little else.

Its only way out leads to the index, and to the hosts where the index's own pages say that the files are. Those pages
are read inside, and no more of them than names of hosts comes out. A password for the index stays with the gateway.
"""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack, aclosing, contextmanager, suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Protocol, Unpack, cast

import anyio
import anyio.to_thread

from fumehood.environments import InstallReport, InstallTask
from fumehood.environments.installer import STEP
from fumehood.environments.sources import Site
from fumehood.errors import StepFailedError, UnenforceableError
from fumehood.events import Event, Finished, Stderr, Stdout
from fumehood.policy import Policy, format_size
from fumehood.policy.egress.addresses import Reach, classify
from fumehood.policy.hosts import is_address, split_endpoint
from fumehood.results import Cause, RunResult
from fumehood.sandbox.request import RunOptions

_HEARTBEAT_SECONDS = 0.1
_MAX_OUTPUT_BYTES = 256 * 1024
_MOST_FILE_HOSTS = 4
_PAGE_SECONDS = 60.0
# Generous, as large packages are large, and far from what would take a machine down.
_RESOURCES = {
    "timeout": "1h",
    "memory": "4G",
    "processes": 512,
    "open_files": 4096,
    "disk": "256M",
    "output": "16M",
}
# A mount has no limit of its own, so what is in it is counted while it grows.
_MOST_BYTES = 32 * 2**30
_SMALLEST_ENTRY_BYTES = 4096
_COUNT_SECONDS = 1.0
# Links of index pages, in either of their two forms; the pages of one index may be missing for some packages.
_READ_PAGES = """
import json, sys, urllib.request
from html.parser import HTMLParser
from urllib.parse import urljoin, urlsplit

class Links(HTMLParser):
    def handle_starttag(self, tag, attributes):
        if tag == "a":
            found.append(dict(attributes).get("href") or "")

def links(body, kind):
    if "json" in kind:
        return [file["url"] for file in json.loads(body)["files"]]
    found.clear()
    Links().feed(body.decode("utf-8", "replace"))
    return list(found)

found, hosts, done = [], set(), set()
for page in sys.argv[1:]:
    index = page.rstrip("/").rpartition("/")[0]
    if index in done:
        continue
    wanted = "application/vnd.pypi.simple.v1+json, text/html;q=0.5"
    try:
        with urllib.request.urlopen(urllib.request.Request(page, headers={"Accept": wanted})) as answer:
            addresses = links(answer.read(), answer.headers.get("Content-Type", ""))
    except Exception:
        continue
    for address in addresses:
        parts = urlsplit(urljoin(page, address))
        if parts.scheme == "https" and parts.hostname:
            hosts.add(f"{parts.hostname}:{parts.port or 443}")
    if addresses:
        done.add(index)
print(*sorted(hosts))
"""


class InstallSandbox(Protocol):
    """The part of a sandbox's interface that an installer needs."""

    async def run(self, code: str | bytes | None = None, **options: Unpack[RunOptions]) -> RunResult: ...

    def stream(self, code: str | bytes | None = None, **options: Unpack[RunOptions]) -> AsyncGenerator[Event, None]: ...

    async def change_policy(self, policy: Policy) -> None: ...


OpenInstallSandbox = Callable[[Policy], AbstractAsyncContextManager[InstallSandbox]]


class SandboxedInstaller:
    """An `InstallRunner` with an event loop of its own, so that threads and command lines can call it."""

    def __init__(self, open_sandbox: OpenInstallSandbox) -> None:
        self._open_sandbox = open_sandbox

    def __call__(
        self, task: InstallTask, on_line: Callable[[str], None], heartbeat: Callable[[], None]
    ) -> InstallReport:
        raised: list[BaseException] = []
        report = anyio.run(self._run_watched, task, on_line, heartbeat, raised)
        if report is None:
            raise raised[0]
        return report

    async def _run_watched(
        self,
        task: InstallTask,
        on_line: Callable[[str], None],
        heartbeat: Callable[[], None],
        raised: list[BaseException],
    ) -> InstallReport | None:
        """None when the heartbeat raised; what it raised may be another event loop's business."""
        report: InstallReport | None = None

        async def watch() -> None:
            while True:
                try:
                    heartbeat()
                except BaseException as error:
                    raised.append(error)
                    scope.cancel()
                    return
                await anyio.sleep(_HEARTBEAT_SECONDS)

        with anyio.CancelScope() as scope:
            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(watch)
                    tasks.start_soon(_limit_disk, task)
                    report = await self._run(task, on_line)
                    tasks.cancel_scope.cancel()
            except BaseExceptionGroup as group:
                raise _only(group) from None
        return None if raised else report

    async def _run(self, task: InstallTask, on_line: Callable[[str], None]) -> InstallReport:
        privates = await anyio.to_thread.run_sync(_private_hosts, task.sites)
        with _logins(task.sites) as secrets:
            policy = policy_for(task, privates, secrets)
            async with AsyncExitStack() as stack:
                with _blamed_on_packages():
                    box = await stack.enter_async_context(self._open_sandbox(policy))
                if task.pages:
                    hosts = await _file_hosts(box, task)
                    policy = policy.override({"network": {"allow": [*_rules(task.sites, privates, hosts)]}})
                    await box.change_policy(policy)
                return _report(*await run_installer(box, task.argv, task.variables, on_line))


async def _limit_disk(task: InstallTask) -> None:
    while True:
        await anyio.sleep(_COUNT_SECONDS)
        if await anyio.to_thread.run_sync(_used_bytes, [*task.writable.values()]) > _MOST_BYTES:
            raise StepFailedError(
                STEP,
                f"it takes more than {format_size(_MOST_BYTES)} of disk",
                remedy="Install fewer packages at once.",
            )


def _used_bytes(folders: Iterable[Path]) -> int:
    """The disk usage of folders, approximate while they change. Does not follow links."""
    used = 0
    for folder in folders:
        for root, names, files in os.walk(folder):
            for name in (*names, *files):
                with suppress(OSError):
                    used += max(os.lstat(os.path.join(root, name)).st_blocks * 512, _SMALLEST_ENTRY_BYTES)
    return used


@contextmanager
def _blamed_on_packages() -> Iterator[None]:
    """Raises UnenforceableError for `environment.packages` when the sandbox for their installation cannot be opened."""
    try:
        yield
    except UnenforceableError as error:
        reason = f"packages are installed in a sandbox of that backend, and {error.control} cannot be: {error.reason}"
        raise UnenforceableError(
            "environment.packages", backend=error.backend, reason=reason, remedy=error.remedy
        ) from error


def policy_for(task: InstallTask, privates: frozenset[str], secrets: list[dict[str, object]]) -> Policy:
    """What an installation may do; `privates` are hosts that are not on the public internet."""
    mounts = [{"source": str(source), "target": target} for target, source in task.readable.items()]
    mounts += [{"source": str(source), "target": target, "mode": "rw"} for target, source in task.writable.items()]
    return Policy(
        name="environment build",
        backend="native",
        filesystem={"mounts": mounts},
        network={"allow": [*_rules(task.sites, privates)]},
        resources={**_RESOURCES, "cpus": float(os.cpu_count() or 1)},
        secrets=secrets,
    )


def _rules(
    sites: Iterable[Site], privates: frozenset[str], file_hosts: Iterable[tuple[str, int]] = ()
) -> Iterator[dict[str, object]]:
    hosts = {(site.host, site.port): "tls" if site.is_secure else "http" for site in sites}
    for host, port in file_hosts:
        hosts.setdefault((host, port), "tls")
    for (host, port), protocol in hosts.items():
        # Who runs an index on a private network may keep its files there; a public one has no business there.
        is_private = host in privates if any(host == site.host for site in sites) else bool(privates)
        yield {"host": host, "ports": [port], "protocol": protocol, "private": is_private}


def _private_hosts(sites: Iterable[Site]) -> frozenset[str]:
    return frozenset(site.host for site in sites if _is_private(site))


def _is_private(site: Site) -> bool:
    if is_address(site.host):
        return classify(ip_address(site.host))[0] is not Reach.PUBLIC
    try:
        found = socket.getaddrinfo(site.host, site.port, type=socket.SOCK_STREAM)
    except OSError:
        return False  # the installer finds that out too, and says it better
    return any(classify(ip_address(address[4][0]))[0] is not Reach.PUBLIC for address in found)


@contextmanager
def _logins(sites: Iterable[Site]) -> Iterator[list[dict[str, object]]]:
    """The logins as secrets of a policy, in files without a name that are gone with this process."""
    logins = {site.host: site.login for site in sites if site.login is not None}
    with ExitStack() as stack:
        yield [_secret(number, host, login, stack) for number, (host, login) in enumerate(logins.items())]


def _secret(number: int, host: str, login: str, stack: ExitStack) -> dict[str, object]:
    descriptor = os.memfd_create("login", os.MFD_CLOEXEC)
    stack.callback(os.close, descriptor)
    os.fchmod(descriptor, 0o600)  # it begins with 0777, and a secret's file must not be writable for every user
    os.write(descriptor, login.encode())
    path = f"/proc/self/fd/{descriptor}"
    return {"name": f"INDEX_{number}", "from_file": path, "inject": {"host": host, "format": "Basic {}"}}


async def _file_hosts(box: InstallSandbox, task: InstallTask) -> list[tuple[str, int]]:
    """Where the index keeps its files: names only, over TLS only, few of them. What makes no sense is not opened."""
    read = await box.run(_READ_PAGES, args=[*task.pages], timeout=_PAGE_SECONDS)
    named = [*_names(read.stdout.split())]
    return named if len(named) <= _MOST_FILE_HOSTS else []


def _names(endpoints: Iterable[str]) -> Iterator[tuple[str, int]]:
    for text in endpoints:
        with suppress(ValueError):
            host, port = split_endpoint(text)
            if not is_address(host):
                yield host, port


async def run_installer(
    box: InstallSandbox, argv: Sequence[str], env: Mapping[str, str], on_line: Callable[[str], None]
) -> tuple[RunResult, str]:
    """Passes the lines of its output on as they appear; returns its result, and the end of its output."""
    output, unfinished = b"", b""
    async with aclosing(box.stream(argv=argv, env=env)) as events:
        async for event in events:
            if isinstance(event, Finished):
                return event.result, output.decode("utf-8", "replace")
            if isinstance(event, Stderr | Stdout):
                output = (output + event.data)[-_MAX_OUTPUT_BYTES:]
                *lines, unfinished = (unfinished[-_MAX_OUTPUT_BYTES:] + event.data).split(b"\n")
                for line in filter(None, (line.decode("utf-8", "replace").strip() for line in lines)):
                    on_line(line)
    raise AssertionError("a stream ends with its result")


def _report(result: RunResult, output: str) -> InstallReport:
    limit = "" if result.cause in (Cause.EXIT, Cause.SIGNAL) else result.detail or result.cause
    refused = tuple(f"{denial.what} ({denial.why})" for denial in result.denials)
    return InstallReport(result.exit_code, output, limit, refused)


def _only(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    return _only(cast("BaseExceptionGroup[BaseException]", first)) if isinstance(first, BaseExceptionGroup) else first
