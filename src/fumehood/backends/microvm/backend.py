"""The entry point of the backend `microvm`: a machine of its own for every sandbox, restored from a template."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from fumehood.backends.enforcement import refuse_other_python
from fumehood.backends.interface import EnforcementReport, PackageFolder
from fumehood.backends.microvm import enforcement
from fumehood.backends.microvm.acceleration import Acceleration, Trials, choose, device_problem, forget, host_processor
from fumehood.backends.microvm.clone import CopySpec, Machine, start_machine
from fumehood.backends.microvm.confinement import Confinement
from fumehood.backends.microvm.disks import packages_disk
from fumehood.backends.microvm.image import MachineImage, read_image
from fumehood.backends.microvm.machine import Emulator, describe, find_emulator
from fumehood.backends.microvm.start import machine_start
from fumehood.backends.microvm.template import MachineTemplates
from fumehood.backends.native import enforcement as native
from fumehood.backends.native.host_facts import HostFacts, detect
from fumehood.backends.relay.link import RelayLink
from fumehood.backends.relay.loop import BackendLoop
from fumehood.backends.relay.pool import MOST_SPARE, GuestPool
from fumehood.backends.runs.sandbox import GuestSandbox
from fumehood.errors import FumehoodError
from fumehood.policy import Policy
from fumehood.tenant import LOCAL, Tenant

_PART_OF_MEMORY = 0.1
# What a copy has for itself before its first run, with QEMU's own memory.
_SPARE_BYTES = 128 * 1024 * 1024


class MicroVMBackend:
    """Has an event loop in a thread of its own: machines and the bytes of their runs live there."""

    name = enforcement.BACKEND

    def __init__(self, facts: HostFacts | None = None) -> None:
        self._facts = facts or detect()
        self._loop = BackendLoop()
        self._open_parts()

    def _open_parts(self) -> None:
        self._confinement = Confinement(self._facts)
        self._templates = MachineTemplates(self._confinement)
        self._trials = Trials(self._attempt)
        self._pool = GuestPool[Machine](_most_spare())

    def check(self, policy: Policy, tenant: Tenant = LOCAL) -> None:
        enforcement.refuse_unknown(policy)
        native.refuse_tenant(tenant, self._facts)
        enforcement.refuse_host(self._facts)
        # A strict policy is refused before anything starts where nothing has to be tried for that.
        best = choose(device_problem(), None)
        enforcement.decide(policy, None, best, enforcement.BEST_LAYERS, packages_in_image=False)

    async def has_packages(self, policy: Policy, request: str, tenant: Tenant = LOCAL) -> bool:
        """The image was made with them: see `hood image build --vm --policy`."""
        return (await anyio.to_thread.run_sync(read_image, policy.image)).environment == request

    @asynccontextmanager
    async def open(
        self, policy: Policy, packages: PackageFolder | None, ports: tuple[int, ...] = (), tenant: Tenant = LOCAL
    ) -> AsyncIterator[GuestSandbox]:
        self.check(policy, tenant)
        image = await anyio.to_thread.run_sync(read_image, policy.image)
        in_image = policy.environment.has_packages and packages is None
        remedy = "Make an image that has them: `hood image build --vm --policy FILE`."
        refuse_other_python(packages, image.python, image.name, self.name, remedy)
        acceleration = await self.acceleration(image)
        decide = partial(enforcement.decide, policy, packages, acceleration, packages_in_image=in_image)
        decide(enforcement.BEST_LAYERS)
        disk = await anyio.to_thread.run_sync(packages_disk, packages) if packages else None
        opening = partial(self._start, policy, image, acceleration, packages, disk, tenant)
        machine: Machine = await self._loop.call(opening, self._discard)
        try:
            report = decide(machine.layers)
            sandbox = self._sandbox(machine, policy, report, image)
            try:
                yield sandbox
            finally:
                sandbox.close()
        finally:
            with anyio.CancelScope(shield=True):
                await self._loop.call(partial(self._let_go, machine))

    def _sandbox(
        self, machine: Machine, policy: Policy, report: EnforcementReport, image: MachineImage
    ) -> GuestSandbox:
        return GuestSandbox(
            RelayLink(self._loop.portal(), machine),
            policy,
            report,
            image_digest=image.digest,
            shares_listeners=True,
            closes_at_once=False,
            is_direct=False,
        )

    async def acceleration(self, image: MachineImage) -> Acceleration:
        """How machines with this image run here; the first caller waits while that is tried."""
        return await self._loop.call(partial(self._trials.choose, image, find_emulator()))

    async def _attempt(self, image: MachineImage, emulator: Emulator) -> None:
        """In the loop: boots a machine by hardware, and restores a copy of it."""
        policy = Policy(backend=enforcement.BACKEND)
        template = await self._templates.get(image, describe(emulator, policy.resources.memory, host_processor()))
        start = machine_start(policy, image, None, has_packages=False)
        spec = CopySpec(template, image, start, packages=None, cpus=1.0, tenant=LOCAL)
        await (await start_machine(self._confinement, spec)).close()

    async def _start(
        self,
        policy: Policy,
        image: MachineImage,
        acceleration: Acceleration,
        packages: PackageFolder | None,
        disk: Path | None,
        tenant: Tenant,
    ) -> Machine:
        """In the loop."""
        processor = host_processor() if acceleration.accelerator == "kvm" else None
        description = describe(find_emulator(), policy.resources.memory, processor)
        template = await self._templates.get(image, description)
        start = machine_start(policy, image, packages, has_packages=policy.environment.has_packages)
        spec = CopySpec(template, image, start, disk, cpus=min(policy.resources.cpus, 1.0), tenant=tenant)
        digest = packages.digest if packages else "no packages"
        key = " ".join((tenant.name, policy.digest, image.digest, description.digest, digest))
        return await self._pool.take(key, partial(start_machine, self._confinement, spec))

    async def _let_go(self, machine: Machine) -> None:
        """In the loop. Its runs are over; nothing of it has to be waited for."""
        try:
            await machine.bridge.close()
        finally:
            self._pool.discard(machine)

    def _discard(self, machine: Machine) -> None:
        """In the loop: the caller was cancelled when its machine was there already."""
        self._pool.discard(machine)

    def close(self) -> None:
        """Everything that was started ends here: machines, templates in memory, cells, the thread."""
        self._loop.close(self._wind_up)

    async def _wind_up(self) -> None:
        await self._pool.close()
        await self._trials.close()
        await self._templates.close()
        await anyio.to_thread.run_sync(self._confinement.close)
        self._open_parts()


def _most_spare() -> int:
    """How many machines may wait for a sandbox: what they hold in memory is a small part of what is free now."""
    with open("/proc/meminfo", encoding="ascii") as stream:
        free = next(int(line.split()[1]) * 1024 for line in stream if line.startswith("MemAvailable"))
    return max(1, min(MOST_SPARE, int(free * _PART_OF_MEMORY) // _SPARE_BYTES))


def examine(policy: Policy | None = None) -> tuple[bool, str]:
    """Whether a machine runs here, by hardware or by software: both are tried. Blocks."""
    backend = MicroVMBackend()
    forget()
    try:
        return True, anyio.run(_examine, backend, policy or Policy(backend=enforcement.BACKEND))
    except (FumehoodError, OSError) as error:
        return False, str(error)
    finally:
        backend.close()


async def _examine(backend: MicroVMBackend, policy: Policy) -> str:
    image = read_image(policy.image)
    async with backend.open(policy, None):
        found = await backend.acceleration(image)
    how = "by hardware (KVM)" if found.accelerator == "kvm" else f"by software (TCG; {found.reason})"
    return f"a machine was started: kernel {image.release} in QEMU, {how}, image {image.name}"
