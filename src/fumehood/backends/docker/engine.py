"""The connection to an engine, what it can do, and what images it has.

Belongs to the backend's event loop. The client library is imported when the first engine is needed.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
import os
import posixpath
import ssl
import tarfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import anyio

from fumehood.backends.docker.errors import EngineError, ImageMissingError, explain_ssh, speaking_to
from fumehood.backends.docker.labels import DEFAULT_IMAGE, container_labels, split_digest
from fumehood.backends.docker.users import ProgramUser, image_user
from fumehood.errors import DeniedError, UsageError
from fumehood.policy.sections import Docker as DockerSection

if TYPE_CHECKING:
    from fumehood.backends.docker.ssh import SshConnector

DEFAULT_HOST = "unix:///var/run/docker.sock"
OLDEST_API = (1, 41)
_FACTS_SECONDS = 30.0
_NEWS_SECONDS = 2.0
_MOST_FILE_BYTES = 16 * 1024 * 1024
_RIGHTS = 0o777
# Go's names for what the kernel calls otherwise.
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What the daemon says of itself."""

    host: str
    machine: str
    cpu_count: int
    cgroup_version: str
    runtimes: tuple[str, ...]
    gvisor_runtimes: frozenset[str]
    """Those of them that are gVisor's, by what the engine starts for them and not by how they are called."""
    default_runtime: str
    limits: frozenset[str]
    """The limits that the engine can set here, out of memory, swap, cpus and processes."""
    security: tuple[str, ...]

    @property
    def is_local(self) -> bool:
        """Whether paths of ours mean the same to it."""
        return is_local(self.host)


def is_local(host: str) -> bool:
    return host.startswith("unix://")


@dataclass(frozen=True, slots=True)
class ImageFacts:
    reference: str
    digest: str
    machine: str
    user: str
    path: tuple[str, ...] = ()
    """Where it wants programs to be looked for."""
    size_bytes: int = 0
    made_at: str = ""
    labels: Mapping[str, str] = field(default_factory=dict[str, str])


class Engine:
    def __init__(self, section: DockerSection) -> None:
        self.host = host_of(section)
        self._ssh: SshConnector | None = None
        _require_client()
        with speaking_to(self.host):
            # Untyped: so is most of what the library hands out.
            self.client: Any = self._connect(section)
        self._facts: EngineFacts | None = None
        self._asked_at = 0.0
        self._out_of_memory: dict[str, float] = {}
        """When the engine said so of a container."""
        self._users: dict[str, ProgramUser] = {}
        """Users by the digest of the image."""
        self._watch: asyncio.Task[None] | None = None

    async def facts(self) -> EngineFacts:
        if self._facts is None or time.monotonic() - self._asked_at > _FACTS_SECONDS:
            try:
                with speaking_to(self.host):
                    _check_api(await self.client.version(), self.host)
                    self._facts = _facts(await self.client.system.info(), self.host)
            except EngineError as error:
                if self._ssh is None or not (said := await self._ssh.last_words()):
                    raise
                raise EngineError(explain_ssh(self.host, said)) from error
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
        """The image of that name; one that is pinned with a digest has to be the one that it names."""
        from aiodocker import DockerError

        name, pin = split_digest(reference)
        with speaking_to(self.host):
            try:
                details: Any = await self.client.images.inspect(name)
            except DockerError as error:
                if error.status != 404:
                    raise
                raise ImageMissingError(
                    f"image {name!r} is not on the engine at {self.host}. {_advice(name)}, or name another as "
                    "`image` in the policy."
                ) from error
        if pin is not None and pin not in _digests(details):
            raise DeniedError(
                f"image: {name!r} on the engine at {self.host} is {details['Id']}, and the policy pins {pin}. Put the "
                "pinned one back, or find out what changed (`hood image inspect`) and pin the new digest."
            )
        return _image_facts(reference, details)

    async def user_of(self, image: ImageFacts) -> ProgramUser:
        """The user of an image's programs, read once for each image."""
        if image.digest not in self._users:
            read = partial(self.read_file, image)
            self._users[image.digest] = await image_user(image.reference, image.user, read)
        return self._users[image.digest]

    async def read_file(self, image: ImageFacts, path: str) -> str:
        """The text of a small file, or none where there is something else, or nothing."""
        from aiodocker import DockerError

        with speaking_to(self.host):
            async with self.unstarted_container(image) as container:
                query = self.client._query(f"containers/{container}/archive", params={"path": path})
                try:
                    async with query as response:
                        archive = await response.content.read(-1) if _is_small_file(response) else b""
                except DockerError as error:
                    if error.status != 404:
                        raise
                    return ""
        return _text_in(archive)

    @asynccontextmanager
    async def unstarted_container(self, image: ImageFacts, *mounts: dict[str, Any]) -> AsyncIterator[str]:
        """A container, by its id, that shows what is in an image and never runs."""
        configuration = {
            "Image": image.digest,
            "Cmd": ["never"],
            "Labels": container_labels("none"),
            "NetworkDisabled": True,
            "HostConfig": {"Mounts": list(mounts)},
        }
        container = await self.client.containers.create(configuration)
        try:
            yield container.id
        finally:
            with anyio.CancelScope(shield=True):
                await container.delete(force=True)

    async def close(self) -> None:
        if self._watch:
            self._watch.cancel()
        await self._stop_listening()
        await self.client.close()
        if self._ssh:
            await self._ssh.close()
            await self._ssh.wait_closed()

    def _connect(self, section: DockerSection) -> Any:
        import aiodocker

        if self.host.startswith("ssh://"):
            from fumehood.backends.docker.ssh import SshConnector

            self._ssh = SshConnector(self.host)
            return aiodocker.Docker(url="unix://localhost", connector=self._ssh)
        if section.tls_ca or section.tls_cert:
            return aiodocker.Docker(url=self.host.replace("tcp://", "https://", 1), ssl_context=_tls(section))
        return aiodocker.Docker(url=self.host)


def _require_client() -> None:
    if find_spec("aiodocker") is None:
        raise UsageError("backend docker needs a client library: `pip install 'fumehood[docker]'`")


def _digests(details: Any) -> set[str]:
    """The engine's own, and those under which it got the image from a registry."""
    return {details["Id"], *(name.partition("@")[2] for name in details.get("RepoDigests") or ())}


def _advice(name: str) -> str:
    """Images of our own are made where they are used; no registry has them."""
    if name.partition(":")[0] == DEFAULT_IMAGE.partition(":")[0]:
        return "Make it with `hood image build`"
    return f"Fetch it with `docker pull {name}`, make one of your own with `hood image build --name {name}`"


def _image_facts(reference: str, details: Any) -> ImageFacts:
    machine: str = details["Architecture"]
    settings: dict[str, Any] = details.get("Config") or {}
    return ImageFacts(
        reference=reference,
        digest=details["Id"],
        machine=_MACHINES.get(machine, machine),
        user=settings.get("User") or "",
        path=_search_path(settings.get("Env") or ()),
        size_bytes=details.get("Size", 0),
        made_at=details.get("Created", ""),
        labels=settings.get("Labels") or {},
    )


def _is_small_file(response: Any) -> bool:
    """What the engine is about to send as an archive; anything but a plain file has more in its mode than rights."""
    details = json.loads(base64.b64decode(response.headers["X-Docker-Container-Path-Stat"]))
    return details["mode"] <= _RIGHTS and details["size"] <= _MOST_FILE_BYTES


def _text_in(archive: bytes) -> str:
    """The text of the only file in an archive, or nothing."""
    with suppress(tarfile.TarError), tarfile.open(fileobj=io.BytesIO(archive)) as files:
        member = files.next()
        if member is not None and member.isfile() and (content := files.extractfile(member)) is not None:
            return content.read().decode("utf-8", "replace")
    return ""


def _search_path(variables: Sequence[str]) -> tuple[str, ...]:
    """None, unless all of it are places that mean the same from every folder."""
    values = [value.split(":") for name, _, value in (entry.partition("=") for entry in variables) if name == "PATH"]
    return tuple(values[-1]) if values and all(place.startswith("/") for place in values[-1]) else ()


def host_of(section: DockerSection) -> str:
    """The engine's address: from the policy, else DOCKER_HOST, else Docker's default."""
    return section.host or os.environ.get("DOCKER_HOST") or DEFAULT_HOST


def _tls(section: DockerSection) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=section.tls_ca)
        if section.tls_cert and section.tls_key:
            context.load_cert_chain(section.tls_cert, section.tls_key)
    except OSError as error:
        raise UsageError(f"docker.tls_*: a certificate or key cannot be used: {error}. Check the paths.") from error
    return context


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
        gvisor_runtimes=frozenset(name for name, runtime in info["Runtimes"].items() if _is_gvisor(runtime)),
        default_runtime=info["DefaultRuntime"],
        limits=frozenset(name for name, key in limits.items() if info.get(key)),
        security=tuple(info.get("SecurityOptions") or ()),
    )


def _is_gvisor(runtime: Any) -> bool:
    program: str = runtime.get("path") or ""
    return posixpath.basename(program) == "runsc" or runtime.get("runtimeType") == "io.containerd.runsc.v1"
