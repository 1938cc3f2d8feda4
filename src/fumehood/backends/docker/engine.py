"""The connection to an engine, what it can do, and one clear sentence for each thing that can be wrong with it.

Belongs to the backend's event loop. The client library is imported when the first engine is needed.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from fumehood.errors import SandboxError, UsageError
from fumehood.policy.docker import Docker as DockerSection

DEFAULT_HOST = "unix:///var/run/docker.sock"
OLDEST_API = (1, 41)
_FACTS_SECONDS = 30.0
_NEWS_SECONDS = 2.0
# Go's names for what the kernel calls otherwise.
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


class EngineError(SandboxError):
    """The engine is not there, does not let us in, or cannot do what was asked; says which, and what to do."""


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What the daemon says of itself."""

    host: str
    machine: str
    cpu_count: int
    cgroup_version: str
    runtimes: tuple[str, ...]
    default_runtime: str
    limits: frozenset[str]
    """Of memory, swap, cpus, processes: those that it can set here."""
    security: tuple[str, ...]

    @property
    def is_local(self) -> bool:
        """Whether paths of ours mean the same to it."""
        return self.host.startswith("unix://")


@dataclass(frozen=True, slots=True)
class ImageFacts:
    reference: str
    digest: str
    machine: str
    user: str


class Engine:
    def __init__(self, section: DockerSection) -> None:
        self.host = host_of(section)
        with speaking_to(self.host):
            # Untyped: so is most of what the library hands out.
            self.client: Any = _connect(self.host, section)
        self._facts: EngineFacts | None = None
        self._asked_at = 0.0
        self._out_of_memory: dict[str, float] = {}
        """When the engine said so of a container."""
        self._watch: asyncio.Task[None] | None = None

    async def facts(self) -> EngineFacts:
        if self._facts is None or time.monotonic() - self._asked_at > _FACTS_SECONDS:
            with speaking_to(self.host):
                _check_api(await self.client.version(), self.host)
                self._facts = _facts(await self.client.system.info(), self.host)
            self._asked_at = time.monotonic()
        if self._watch is None or self._watch.done():
            self._watch = asyncio.get_running_loop().create_task(self._follow_events())
        return self._facts

    async def _follow_events(self) -> None:
        events = self.client.events.subscribe()
        while (event := await events.get()) is not None:
            if event.get("Type") == "container" and event.get("Action") == "oom":
                self._out_of_memory[str(event["Actor"]["ID"])] = time.monotonic()
            elif event.get("Action") == "destroy":
                asyncio.get_running_loop().call_later(_NEWS_SECONDS, self._forget, str(event["Actor"]["ID"]))
        await self._stop_listening()

    async def _stop_listening(self) -> None:
        """Whatever the connection ended with; then the next one can begin."""
        import aiohttp
        from aiodocker import DockerError

        with suppress(DockerError, aiohttp.ClientError, OSError):
            await self.client.events.stop()

    def _forget(self, container: str) -> None:
        self._out_of_memory.pop(container, None)

    async def ran_out_of_memory(self, container: str) -> bool:
        """Whether that is why it has just ended. The news may be a moment behind the end."""
        ended = time.monotonic()
        while time.monotonic() - ended < _NEWS_SECONDS / 4:
            if ended - self._out_of_memory.get(container, -_NEWS_SECONDS) < _NEWS_SECONDS:
                return True
            await asyncio.sleep(0.02)
        return False

    async def image(self, reference: str) -> ImageFacts:
        from aiodocker import DockerError

        with speaking_to(self.host):
            try:
                details: Any = await self.client.images.inspect(reference)
            except DockerError as error:
                if error.status != 404:
                    raise
                raise EngineError(
                    f"image {reference!r} is not on the engine at {self.host}. Make one with `hood image build`, load "
                    f"it with `docker pull {reference}`, or name another as docker.image in the policy."
                ) from error
        machine: str = details["Architecture"]
        settings: dict[str, Any] = details.get("Config") or {}
        return ImageFacts(reference, details["Id"], _MACHINES.get(machine, machine), settings.get("User") or "")

    async def close(self) -> None:
        if self._watch:
            self._watch.cancel()
        await self._stop_listening()
        await self.client.close()


def host_of(section: DockerSection) -> str:
    """As every other client of Docker finds it, unless the policy says."""
    return section.host or os.environ.get("DOCKER_HOST") or DEFAULT_HOST


def _connect(host: str, section: DockerSection) -> Any:
    try:
        import aiodocker
    except ImportError as error:
        raise UsageError("backend docker needs a client library: `pip install 'fumehood[docker]'`") from error
    if host.startswith("ssh://"):
        raise UsageError(
            f"engine {host}: ssh is not built in. Forward its socket (`ssh -nNT -L "
            f"/tmp/docker.sock:/var/run/docker.sock {host.removeprefix('ssh://')}`) and use docker.host: unix:///tmp/docker.sock."
        )
    if section.tls_ca or section.tls_cert:
        return aiodocker.Docker(url=host.replace("tcp://", "https://", 1), ssl_context=_tls(section))
    return aiodocker.Docker(url=host)


def _tls(section: DockerSection) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=section.tls_ca)
        if section.tls_cert and section.tls_key:
            context.load_cert_chain(section.tls_cert, section.tls_key)
    except OSError as error:
        raise UsageError(f"docker.tls_*: a certificate or key cannot be used: {error}. Check the paths.") from error
    return context


@contextmanager
def speaking_to(host: str) -> Iterator[None]:
    """What goes wrong between us and the daemon, in our words."""
    import aiohttp
    from aiodocker import DockerError

    try:
        yield
    except (DockerError, aiohttp.ClientError, OSError) as error:
        raise EngineError(_explain(host, str(error))) from error


def _explain(host: str, said: str) -> str:
    if "Permission denied" in said:
        return (
            f"no permission to use the Docker engine at {host}. Join its group (`sudo usermod -aG docker $USER`, then "
            "log in again), run as root, or use backend: native, which needs neither."
        )
    if "Cannot connect" in said or "refused" in said or "No such file" in said:
        return (
            f"no Docker engine answers at {host}. Start it (`sudo systemctl start docker`), or set docker.host in the "
            "policy or DOCKER_HOST."
        )
    if "no space left" in said:
        return f"the Docker engine at {host} has no space left on its disk. Free some (`docker system prune`): {said}"
    return f"the Docker engine at {host} refused: {said}"


def _check_api(version: Any, host: str) -> None:
    numbers = tuple(int(part) for part in version["ApiVersion"].split("."))
    if numbers < OLDEST_API:
        wanted = ".".join(map(str, OLDEST_API))
        raise EngineError(
            f"the Docker engine at {host} speaks API {version['ApiVersion']}, and {wanted} is the oldest that will do. "
            "Upgrade it to Docker 20.10 or newer."
        )


def _facts(info: Any, host: str) -> EngineFacts:
    limits = {"memory": "MemoryLimit", "swap": "SwapLimit", "cpus": "CpuCfsQuota", "processes": "PidsLimit"}
    machine: str = info["Architecture"]
    return EngineFacts(
        host=host,
        machine=_MACHINES.get(machine, machine),
        cpu_count=info["NCPU"],
        cgroup_version=info.get("CgroupVersion", "1"),
        runtimes=tuple(info["Runtimes"]),
        default_runtime=info["DefaultRuntime"],
        limits=frozenset(name for name, key in limits.items() if info.get(key)),
        security=tuple(info.get("SecurityOptions") or ()),
    )
