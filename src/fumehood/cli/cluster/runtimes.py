"""Credentials for processes of a tenant's agents, which meet at the cluster's NATS server by `NatsRuntime`."""

from __future__ import annotations

import asyncio
from pathlib import Path

from fumehood.cluster.accounts import push_accounts
from fumehood.cluster.authority import ClusterAuthority
from fumehood.cluster.permissions import Permissions
from fumehood.cluster.stream_accounts import STREAMS_API
from fumehood.errors import UsageError
from fumehood.frozen import frozen
from fumehood.runtime.nats.connection import NatsConnection, open_link
from fumehood.runtime.nats.directory import prepare_space
from fumehood.runtime.nats.subjects import Subjects, process_permissions


@frozen
class RuntimeWishes:
    """What a process of agents is to be allowed."""

    tenant: str
    process: str
    types: tuple[str, ...]
    space: str = "default"
    is_application: bool = False
    writes_grants: bool = False


def issue_credentials(authority: ClusterAuthority, wishes: RuntimeWishes, path: Path) -> None:
    """Needs NATS, which is given the tenant's account, and makes the streams of the space."""
    if path.exists():
        raise UsageError(f"{path} exists already; choose another place with --output")
    allowed = process_permissions(
        wishes.process,
        wishes.types,
        application=wishes.is_application,
        grants=wishes.writes_grants,
        space=wishes.space,
        api_prefix=STREAMS_API,
    )
    asyncio.run(_prepare(authority, wishes.tenant, Subjects(wishes.space, STREAMS_API)))
    permissions = Permissions(allowed.publish, allowed.subscribe)
    authority.make_runtime(wishes.process, wishes.tenant, permissions).write(path)


async def _prepare(authority: ClusterAuthority, tenant: str, subjects: Subjects) -> None:
    members, streams = authority.ensure_account(tenant)
    await push_accounts(authority, [streams, members])
    maker = authority.make_space_maker(tenant)
    settings = NatsConnection.of_member(maker)
    async with open_link(settings, maker.name, subjects.inbox(maker.name), lambda _: None) as link:
        await prepare_space(link, subjects)
