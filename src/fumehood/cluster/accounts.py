"""Accounts on their way to a running NATS server: new ones, and those from which a member was removed."""

from __future__ import annotations

import json
from collections.abc import Sequence

from fumehood.cluster.connection import close, connect
from fumehood.cluster.credentials import Credentials
from fumehood.errors import LostError, SandboxError

_UPDATE = "$SYS.REQ.CLAIMS.UPDATE"
_ANSWER_SECONDS = 5


async def push_accounts(credentials: Credentials, tokens: Sequence[str]) -> None:
    """By a server's credentials. NATS checks that the operator has signed them; a member that is revoked is cut off."""
    from nats.errors import Error

    client = await connect(credentials, is_observer=True)
    try:
        for token in tokens:
            answer = await client.request(_UPDATE, token.encode(), timeout=_ANSWER_SECONDS)
            if "error" in (said := json.loads(answer.data)):
                raise SandboxError(f"NATS does not take the account: {said['error']}")
    except Error as error:
        raise LostError(f"NATS does not take the account: {error}") from error
    finally:
        await close(client)
