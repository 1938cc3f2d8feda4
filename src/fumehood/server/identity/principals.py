"""Somebody who makes requests: a tenant, what it may do there, and the name that records carry."""

from __future__ import annotations

from enum import StrEnum

from fumehood.errors import FumehoodError
from fumehood.frozen import frozen


class Scope(StrEnum):
    """What a key or a role lets its holder do."""

    RUN = "run"
    """Open sandboxes and run code in them."""
    FILES = "files"
    APPROVE = "approve"
    AUDIT = "audit"
    """Read the tenant's records."""
    POLICIES = "policies"
    """Change the tenant's policies and secrets."""
    KEYS = "keys"
    """Make and revoke keys of the tenant, with no more scopes than its own."""
    OPERATE = "operate"
    """Tenants, keys and quotas: for those who run the server."""


OF_TENANTS = tuple(scope for scope in Scope if scope is not Scope.OPERATE)
"""What the first key of a tenant has."""


@frozen
class Principal:
    tenant: str
    name: str
    """`key:4fz8q2ab`, or `user:ISSUER/SUBJECT` for the holder of a token."""
    scopes: frozenset[Scope]
    expires: float | None = None
    """Of a token; a key's end is in the database."""
    authenticated: float | None = None
    """When the holder of a token showed who they are, if its issuer says so."""

    def may(self, scope: Scope) -> bool:
        return scope in self.scopes


class NotAuthenticatedError(FumehoodError):
    """No key, or one that is not valid (any more); the text does not say which."""

    def __init__(self) -> None:
        super().__init__("the key is missing or not valid; make one with `hood key create`")


class ForbiddenError(FumehoodError):
    """The key is valid and does not have the scope."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(f"the key does not have the scope {scope.value!r}")
        self.scope = scope
