"""JSON Web Tokens of NATS: an operator signs accounts, an account signs users."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from fumehood.cluster.nkeys import SigningPair, verify_signature
from fumehood.cluster.permissions import Permissions
from fumehood.errors import UsageError
from fumehood.frozen import frozen

_HEADER = {"typ": "JWT", "alg": "ed25519-nkey"}
_UNLIMITED = -1
_TENANT = "tenant:"


def operator_token(operator: SigningPair, system_account: str) -> str:
    return _sign(operator, operator.public, "fumehood", {"type": "operator", "system_account": system_account})


def account_token(
    operator: SigningPair,
    account: str,
    name: str,
    *,
    disk_bytes: int,
    revoked: Mapping[str, int],
    exports: Sequence[Mapping[str, Any]] = (),
    imports: Sequence[Mapping[str, Any]] = (),
) -> str:
    """`revoked`: public keys of users -> tokens that were issued up to that time are not valid any more."""
    limits = {
        **dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "consumer"), _UNLIMITED),
        "wildcards": True,
        "leaf": 0,
        "mem_storage": disk_bytes,
        "disk_storage": disk_bytes,
        "streams": _UNLIMITED if disk_bytes else 0,
    }
    body: dict[str, Any] = {"type": "account", "limits": limits, "default_permissions": {"pub": {}, "sub": {}}}
    more = {"revocations": dict(revoked), "exports": list(exports), "imports": list(imports)}
    return _sign(operator, account, name, body | {key: value for key, value in more.items() if value})


def user_token(
    account: SigningPair,
    user: str,
    name: str,
    permissions: Permissions,
    *,
    expires: float | None = None,
    tenants: Sequence[str] = (),
) -> str:
    """`tenants`: whom a worker may serve, if not all; servers check it, so that it cannot offer itself to others."""
    body: dict[str, Any] = {
        "type": "user",
        **dict.fromkeys(("subs", "data", "payload"), _UNLIMITED),
        # Without an entry everything would be allowed.
        "pub": {"allow": list(permissions.publish)} if permissions.publish else {"deny": [">"]},
        "sub": {"allow": list(permissions.subscribe)} if permissions.subscribe else {"deny": [">"]},
        "tags": [_TENANT + tenant for tenant in tenants],
    }
    if permissions.answers:
        body["resp"] = {"max": 1, "ttl": int(permissions.answers * 1e9)}
    return _sign(account, user, name, body, expires)


@frozen
class UserClaims:
    """What an account has signed of one of its users."""

    name: str
    public: str
    account: str
    tenants: frozenset[str]
    """Empty for a worker of all tenants."""


def read_user_token(token: str, account: str) -> UserClaims:
    """UsageError for a token that this account has not signed, or that has expired."""
    try:
        signed, _, signature = token.rpartition(".")
        verify_signature(account, signed.encode(), _unpart(signature))
        given: dict[str, Any] = json.loads(_unpart(signed.partition(".")[2]))
        tags = [str(tag) for tag in given["nats"].get("tags") or ()]
        found = UserClaims(
            str(given["name"]),
            str(given["sub"]),
            str(given["iss"]),
            frozenset(tag.removeprefix(_TENANT) for tag in tags if tag.startswith(_TENANT)),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError("the token of a NATS user is not valid") from error
    if found.account != account or given.get("exp", time.time() + 1) < time.time():
        raise UsageError("the token of a NATS user is not of this account, or has expired")
    return found


def account_of(token: str) -> str:
    """The account that has signed one's own token."""
    return str(json.loads(_unpart(token.split(".")[1]))["iss"])


def _sign(signer: SigningPair, subject: str, name: str, body: Mapping[str, Any], expires: float | None = None) -> str:
    claims: dict[str, Any] = {
        "iat": int(time.time()),
        "iss": signer.public,
        "name": name,
        "sub": subject,
        "nats": {**body, "version": 2},
    }
    if expires is not None:
        claims["exp"] = int(expires)
    claims["jti"] = base64.b32encode(hashlib.sha256(json.dumps(claims).encode()).digest()).decode().rstrip("=")
    signed = f"{_part(json.dumps(_HEADER).encode())}.{_part(json.dumps(claims).encode())}"
    return f"{signed}.{_part(signer.sign(signed.encode()))}"


def _unpart(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _part(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
