"""The entry point of the backends on an engine: `docker`, `gvisor`, and any other runtime by its name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial

import anyio

from fumehood.backends.docker import enforcement, socket_buffers
from fumehood.backends.docker.commands_folder import make_commands_folder
from fumehood.backends.docker.configuration import Design
from fumehood.backends.docker.container import Container, PythonMissingError, start_container
from fumehood.backends.docker.engine import Engine, host_of
from fumehood.backends.docker.interpreter import forget_interpreter, lend_interpreter
from fumehood.backends.docker.labels import DEFAULT_IMAGE, ENVIRONMENT, image_of, lender_of
from fumehood.backends.docker.mounts import (
    MountFacts,
    common_owner,
    keeps_ids,
    look_at_mounts,
    refuse_strangers,
)
from fumehood.backends.docker.sandbox import container_sandbox
from fumehood.backends.enforcement import refuse_other_python
from fumehood.backends.interface import EnforcementReport, PackageFolder
from fumehood.backends.mounts import mount_identities, refuse_sockets_aside
from fumehood.backends.relay.loop import BackendLoop
from fumehood.backends.relay.pool import GuestPool
from fumehood.backends.runs.sandbox import GuestSandbox
from fumehood.errors import FumehoodError
from fumehood.policy import Docker, Policy
from fumehood.tenant import LOCAL, Tenant

RUNTIMES = {"docker": None, "gvisor": "runsc"}
# To find the interpreter that was lent to an image.
_MORE_ATTEMPTS = 2


class DockerBackend:
    """Has an event loop in a thread of its own: connections, containers and the bytes of their runs live there.

    Sandboxes are used from any thread and any event loop; the engine's connections belong to one.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._loop = BackendLoop()
        self._engines: dict[tuple[str, ...], Engine] = {}
        self._pool = GuestPool[Container]()
        self._pythonless: set[str] = set()
        """Digests of images, as starting a container with them has shown."""

    def check(self, policy: Policy, tenant: Tenant = LOCAL) -> None:
        enforcement.refuse_unknown(policy, self.name)
        enforcement.refuse_tenant(tenant, self.name)

    async def has_packages(self, policy: Policy, request: str, tenant: Tenant = LOCAL) -> bool:
        """The image was made with them: see `hood image build --policy`."""
        return await self._loop.call(partial(self._has_packages, policy, request, tenant))

    async def _has_packages(self, policy: Policy, request: str, tenant: Tenant) -> bool:
        """In the loop."""
        engine = self._engine(tenant.engine(policy))
        await engine.facts()
        return (await engine.image(image_of(policy))).labels.get(ENVIRONMENT) == request

    @asynccontextmanager
    async def open(
        self, policy: Policy, packages: PackageFolder | None, ports: tuple[int, ...] = (), tenant: Tenant = LOCAL
    ) -> AsyncIterator[GuestSandbox]:
        self.check(policy, tenant)
        identities, mounts = mount_identities(policy), look_at_mounts(policy)
        # gVisor lets programs connect to no socket of the host.
        are_searched = self.name == "gvisor" or await refuse_sockets_aside(policy, self.name)
        opening = partial(self._open, policy, packages, ports, identities, mounts, are_searched, tenant)
        design, container = await self._loop.call(opening, self._dispose)
        try:
            report = self._decide(design, container)
            sandbox = container_sandbox(self._loop.portal(), container, design, report)
            try:
                yield sandbox
            finally:
                sandbox.close()
        finally:
            with anyio.CancelScope(shield=True):
                await self._loop.call(partial(self._let_go, container))

    async def _let_go(self, container: Container) -> None:
        """In the loop. Its runs are over; what is left of it is ours, and the engine takes its time to remove it."""
        try:
            await container.bridge.close()
        finally:
            self._pool.discard(container)

    def _decide(self, design: Design, container: Container) -> EnforcementReport:
        image, python = design.image.reference, container.python
        refuse_other_python(design.packages, python, image, self.name, enforcement.MAKE_IMAGE)
        enforcement.refuse_without_landlock(design.policy, self.name, container.layers)
        return self._report(design, container.layers, limits_sockets=container.limits_sockets)

    def _report(self, design: Design, layers: tuple[str, ...], *, limits_sockets: bool) -> EnforcementReport:
        return enforcement.decide(
            design.policy,
            self.name,
            design.facts,
            user=str(design.user),
            has_own_kernel=design.has_own_kernel,
            packages=design.packages,
            layers=layers,
            limits_sockets=limits_sockets,
            mounts_are_searched=design.mounts_are_searched,
        )

    async def _open(
        self,
        policy: Policy,
        packages: PackageFolder | None,
        ports: tuple[int, ...],
        identities: list[str],
        mounts: tuple[MountFacts, ...],
        are_searched: bool,
        tenant: Tenant,
    ) -> tuple[Design, Container]:
        """In the loop."""
        engine = self._engine(tenant.engine(policy))
        facts = await engine.facts()
        image = await engine.image(image_of(policy))
        runtime = policy.docker.runtime or RUNTIMES[self.name] or facts.default_runtime
        enforcement.refuse_machine(policy, self.name, runtime, facts, image, packages)
        # Packages that the caller does not hand over are in the image, as `has_packages` returned.
        in_image = policy.environment.has_packages and packages is None
        owner = common_owner(mounts) if keeps_ids(facts) else None
        user = owner or await engine.user_of(image)
        design = Design(
            policy,
            facts,
            image,
            runtime,
            user,
            packages,
            in_image,
            has_listeners=bool(ports),
            mounts_are_searched=are_searched,
            commands=make_commands_folder(policy, is_open=bool(ports)) if facts.is_local else None,
            tenant=tenant.name,
        )
        if keeps_ids(facts):
            refuse_strangers(mounts, self.name, user)
        # A strict policy is refused before anything starts, and again if the guest then has less than it could have.
        counted = socket_buffers.are_counted_as_memory(facts) or socket_buffers.can_be_limited(facts)
        self._report(design, enforcement.BEST_LAYERS, limits_sockets=counted)
        digest = packages.digest if packages else "no packages"
        parts = (
            tenant.name,
            policy.digest,
            engine.host,
            image.digest,
            runtime,
            str(user),
            digest,
            f"{len(ports)} ports",
        )
        key = " ".join((*parts, *identities))
        if image.digest not in self._pythonless:
            with suppress(PythonMissingError):
                return design, await self._take(key, engine, design)
            self._pythonless.add(image.digest)
        enforcement.refuse_without_python(policy, image)
        return await self._open_with_lent(key, engine, design)

    async def _open_with_lent(self, key: str, engine: Engine, design: Design) -> tuple[Design, Container]:
        """Opens a container in the loop; tries again when another process has removed the interpreter's volume."""
        for _ in range(_MORE_ATTEMPTS):
            with suppress(PythonMissingError):
                return await self._take_with_lent(key, engine, design)
        return await self._take_with_lent(key, engine, design)

    async def _take_with_lent(self, key: str, engine: Engine, design: Design) -> tuple[Design, Container]:
        lent = await lend_interpreter(engine, design.image, lender_of(design.policy))
        # Without a Python of its own the image has nothing to install for: its own `pip`, if any, stays the first.
        design = replace(design, lent=lent, commands=None)
        try:
            return design, await self._take(f"{key} {lent.volume}", engine, design)
        except PythonMissingError:
            await forget_interpreter(engine, lent)
            raise

    async def _take(self, key: str, engine: Engine, design: Design) -> Container:
        return await self._pool.take(key, partial(start_container, engine, design))

    def _engine(self, section: Docker) -> Engine:
        key = (host_of(section), section.tls_ca or "", section.tls_cert or "", section.tls_key or "")
        if key not in self._engines:
            self._engines[key] = Engine(section)
        return self._engines[key]

    def _dispose(self, opened: tuple[Design, Container]) -> None:
        """In the loop: the caller was cancelled when its container was there already."""
        self._pool.discard(opened[1])

    def close(self) -> None:
        """Everything that was started ends here: spare containers, connections, the thread."""
        self._loop.close(self._wind_up)

    async def _wind_up(self) -> None:
        await self._pool.close()
        self._pool = GuestPool[Container]()
        for engine in self._engines.values():
            await engine.close()
        self._engines.clear()


def examine(name: str) -> tuple[bool, str]:
    """Whether a sandbox with an empty policy would open, and how or why not."""
    try:
        return True, anyio.run(_examine, name)
    except FumehoodError as error:
        return False, str(error)


async def _examine(name: str) -> str:
    policy = Policy(backend=name)
    engine = Engine(policy.docker)
    try:
        facts = await engine.facts()
        runtime = RUNTIMES[name] or facts.default_runtime
        image = await engine.image(DEFAULT_IMAGE)
        enforcement.refuse_machine(policy, name, runtime, facts, image)
    finally:
        await engine.close()
    return f"engine at {facts.host}, runtime {runtime}, image {image.reference}"
