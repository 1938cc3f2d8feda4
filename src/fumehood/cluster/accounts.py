"""Accounts on their way to a running NATS server: new ones, and those from which a member was removed."""

from __future__ import annotations

import json
from collections.abc import Sequence

from fumehood.cluster.authority import ClusterAuthority
from fumehood.cluster.connection import close, connect
from fumehood.cluster.permissions import CLAIMS_UPDATE
from fumehood.errors import LostError, SandboxError

_ANSWER_SECONDS = 5


async def push_accounts(authority: ClusterAuthority, names: Sequence[str]) -> None:
    """As they are now. NATS checks that the operator has signed them; a member that is revoked is cut off."""
    from nats.errors import Error

    client = await connect(authority.make_administrator(), is_observer=True)
    try:
        for name in names:
            token = authority.account_token(name).encode()
            answer = await client.request(CLAIMS_UPDATE, token, timeout=_ANSWER_SECONDS)
            if "error" in (said := json.loads(answer.data)):
                raise SandboxError(f"NATS does not take the account: {said['error']}")
    except Error as error:
        raise LostError(f"NATS does not take the account: {error}") from error
    finally:
        await close(client)
