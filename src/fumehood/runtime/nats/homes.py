"""The homes of agents: which of them are in this process, and how partitions of types change hands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import anyio

from fumehood.errors import DeliveryError, UsageError
from fumehood.runtime.agent import Registration
from fumehood.runtime.grants import Grants
from fumehood.runtime.identity import AgentId, Pattern
from fumehood.runtime.nats.assignment import assigned, handed_over
from fumehood.runtime.nats.directory import Directory, GrantsEntry, TypeEntry
from fumehood.runtime.nats.membership import Membership
from fumehood.runtime.nats.subjects import Address, partition_of
from fumehood.runtime.registry import Registry


class AgentHomes:
    """Shares the types that this process has registered with others."""

    def __init__(self, directory: Directory, membership: Membership, registry: Registry) -> None:
        self._directory, self._membership, self._registry = directory, membership, registry
        self._types: dict[str, TypeEntry] = {}
        """What this process has registered; members and homes are those of the directory."""
        self._leaving: set[tuple[str, int]] = set()
        self._changed, self._handed_over = anyio.Event(), anyio.Event()

    @property
    def address(self) -> Address:
        return self._membership.address

    @property
    def is_member(self) -> bool:
        """Whether this process has its lease; without one it sends nothing."""
        return self._membership.is_valid

    def is_here(self, agent: AgentId) -> bool:
        """Whether this process may handle messages of that agent now."""
        is_home = self._directory.home(agent) == self.address and agent.type in self._types
        return is_home and (agent.type, partition_of(agent)) not in self._leaving and self._membership.is_valid

    def partitions(self) -> set[tuple[str, int]]:
        """Those of which this process is the home, of types with subscriptions."""
        found: set[tuple[str, int]] = set()
        for type in self._types:
            entry = self._directory.type(type)
            if entry is not None and (entry.subscriptions or entry.own_subscriptions):
                own = entry.members.get(self.address.process) == self.address.incarnation
                homes = enumerate(entry.homes) if own else ()
                found |= {(type, number) for number, home in homes if home == self.address.process}
        return found - self._leaving

    async def share(
        self, registration: Registration, takes: Mapping[str, str], subscriptions: Sequence[Pattern]
    ) -> None:
        """UsageError if other processes have registered this type differently."""
        wanted = TypeEntry(takes=takes, subscriptions=tuple(map(str, subscriptions)))
        await self._share_grants(registration.type, registration.grants)
        self._types[registration.type] = wanted
        try:
            await self._join(registration.type)
        except BaseException:
            del self._types[registration.type]
            raise

    async def join_again(self) -> None:
        """After a new incarnation has begun."""
        for type in tuple(self._types):  # others are registered meanwhile, and join by themselves
            await self._join(type)

    async def leave(self) -> None:
        """Gives all partitions to other processes that have the types."""
        for type in tuple(self._types):
            del self._types[type]
            await self._directory.change_type(type, lambda entry, type=type: self._left(type, entry))

    async def _share_grants(self, type: str, grants: Grants) -> None:
        await self._directory.refresh_type(type)

        def change(entry: GrantsEntry | None) -> GrantsEntry | None:
            if entry is not None and entry.type == grants and (self._others(type) or not entry.agents):
                return None
            if entry is not None and self._others(type):
                raise UsageError(
                    f"another process has registered {type!r} with other grants; register it with the same, and "
                    "change them with `grant`"
                )
            return GrantsEntry(type=grants)

        await self._directory.change_grants(type, change)

    async def _join(self, type: str) -> None:
        await self._directory.change_type(type, lambda entry: self._joined(type, entry))

    def _joined(self, type: str, entry: TypeEntry | None) -> TypeEntry | None:
        wanted, others = self._types[type], self._living(entry)
        if entry is not None and others:
            self._check_same(type, entry, wanted)
        members = {**others, self.address.process: self.address.incarnation}
        own = entry.own_subscriptions if entry is not None and others else ()
        former = wanted.homes if entry is None else entry.homes
        # An earlier incarnation of this process was home to agents that are gone.
        kept = [home if home in others else None for home in former]
        homes = assigned(type, kept, members)
        return wanted.model_copy(update={"members": members, "homes": homes, "own_subscriptions": own})

    def _left(self, type: str, entry: TypeEntry | None) -> TypeEntry | None:
        if entry is None or self.address.process not in entry.members:
            return None
        others = self._living(entry)
        return entry.model_copy(update={"members": others, "homes": assigned(type, entry.homes, others)})

    def _check_same(self, type: str, entry: TypeEntry, wanted: TypeEntry) -> None:
        if dict(entry.takes) != dict(wanted.takes):
            names = sorted(set(entry.takes.items()) ^ set(wanted.takes.items()))
            differing = ", ".join(sorted({name for name, _ in names}))
            raise UsageError(
                f"another process has registered {type!r} with other messages, or other versions of them: {differing}; "
                "run the same version everywhere, or give changed messages and types new names"
            )
        if entry.subscriptions != wanted.subscriptions:
            raise UsageError(f"another process has registered {type!r} with other subscriptions; they must be the same")

    def _others(self, type: str) -> dict[str, str]:
        return self._living(self._directory.type(type))

    def _living(self, entry: TypeEntry | None) -> dict[str, str]:
        """The members other than this process that are alive."""
        members: Mapping[str, str] = {} if entry is None else entry.members
        return {
            process: incarnation
            for process, incarnation in members.items()
            if process != self.address.process
            and self._directory.is_current(Address(process, incarnation))
            and not self._membership.is_lost(process)
        }

    # Changes

    def notice(self) -> None:
        """The directory has changed."""
        self._changed.set()

    async def run(self) -> None:
        """Takes over from processes that are lost, and hands over to those that have joined."""
        while True:
            with anyio.move_on_after(self._membership.lease_seconds / 5):
                await self._changed.wait()
            self._changed = anyio.Event()
            if self._is_deposed():
                self._membership.expire()
            elif self._membership.is_valid:
                for type in tuple(self._types):
                    await self._balance(type)

    def _is_deposed(self) -> bool:
        """Whether others have taken this process for lost, although it lives."""
        for mailbox in self._registry.mailboxes():
            home = self._directory.home(mailbox.id)
            if home is not None and home != self.address:
                return True
        return False

    async def _balance(self, type: str) -> None:
        try:
            await self._directory.change_type(type, lambda entry: self._taken_over(type, entry))
            await self._hand_over(type)
        except DeliveryError:
            # NATS is away, or others are changing the same entry; there is a next time.
            return

    def _taken_over(self, type: str, entry: TypeEntry | None) -> TypeEntry | None:
        if entry is None or entry.members.get(self.address.process) != self.address.incarnation:
            return None
        members = {**self._living(entry), self.address.process: self.address.incarnation}
        homes = assigned(type, entry.homes, members)
        is_same = members == dict(entry.members) and homes == tuple(entry.homes)
        return None if is_same else entry.model_copy(update={"members": members, "homes": homes})

    async def _hand_over(self, type: str) -> None:
        entry, own = self._directory.type(type), self.address.process
        if entry is None:
            return
        used = {partition_of(mailbox.id) for mailbox in self._registry.mailboxes() if mailbox.id.type == type}
        homes = handed_over(type, entry.homes, entry.members, own, lambda number: number not in used)
        given = {number for number, home in enumerate(homes) if home != entry.homes[number]}
        if not given:
            return
        # Messages for these partitions wait meanwhile: an agent that is created now would have two homes.
        self._leaving |= {(type, number) for number in given}
        self._handed_over = anyio.Event()
        try:
            await self._directory.change_type(type, lambda entry: _given(entry, given, homes, own))
        finally:
            self._leaving -= {(type, number) for number in given}
            self._handed_over.set()

    async def settle(self, agent: AgentId) -> None:
        """Waits while the agent's partition is being handed over."""
        while (agent.type, partition_of(agent)) in self._leaving:
            await self._handed_over.wait()


def _given(entry: TypeEntry | None, given: set[int], homes: Sequence[str | None], own: str) -> TypeEntry | None:
    if entry is None:
        return None
    changed = tuple(
        homes[number] if number in given and home == own and homes[number] in entry.members else home
        for number, home in enumerate(entry.homes)
    )
    return None if changed == tuple(entry.homes) else entry.model_copy(update={"homes": changed})
