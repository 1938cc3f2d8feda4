"""Access tokens of OpenID Connect: a token in, a principal out, or the reason why not.

What the token's own header says chooses among what the settings allow, and nothing more: its algorithm must be listed
and fit the key, its key must be one that the issuer publishes, and addresses in it (`jku`, `x5u`) are not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from fumehood.server.identity.issuers import IssuerSettings
from fumehood.server.identity.principals import NotAuthenticatedError, Principal, Scope
from fumehood.server.identity.provider import IdentityProvider, Jwk

_MOST_CHARACTERS = 16 * 1024
_MOST_NAME = 255
_LEAST_RSA_BITS = 2048
_REQUIRED = ["exp", "iss", "aud", "sub"]
_TYPES = (None, "jwt", "at+jwt", "application/at+jwt")
_RSA: dict[str, tuple[str, str | None]] = dict.fromkeys(
    ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), ("RSA", None)
)
_KEY_TYPES: dict[str, tuple[str, str | None]] = _RSA | {
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", "Ed25519"),
}
_PUBLIC = ("kty", "crv", "x", "y", "n", "e")


class TokenRefusedError(NotAuthenticatedError):
    """A token that is not accepted. The reason is about the token alone, which its holder has anyway."""

    def __init__(self, reason: str) -> None:
        Exception.__init__(self, f"the token is not accepted: {reason}")


class TokenVerifier:
    """The issuers of the settings, by name; the name is part of what their users are called in records."""

    def __init__(self, issuers: Mapping[str, IssuerSettings]) -> None:
        self._issuers = {each.issuer: (name, each, IdentityProvider(each)) for name, each in issuers.items()}

    async def verify(self, token: str) -> Principal:
        name, settings, claims = await self._believe(token, lambda issuer: issuer.audience)
        return _principal(name, settings, claims)

    async def sign_in_time(self, token: str, principal: Principal) -> float | None:
        """When the principal showed who they are, as an ID token for this server's client says; None if it does not.

        TokenRefusedError for the token of another user.
        """
        name, _, claims = await self._believe(token, lambda issuer: issuer.client or "")
        if _user(name, claims) != principal.name:
            raise TokenRefusedError("it is another user's")
        return _auth_time(claims)

    async def _believe(
        self, token: str, audience: Callable[[IssuerSettings], str]
    ) -> tuple[str, IssuerSettings, Mapping[str, Any]]:
        import jwt

        if len(token) > _MOST_CHARACTERS:
            raise TokenRefusedError("it is too long")
        try:
            header = jwt.get_unverified_header(token)
            claimed: Any = jwt.decode(token, options={"verify_signature": False}).get("iss")
        except (jwt.PyJWTError, ValueError, RecursionError) as error:
            raise TokenRefusedError("it is not a signed token (JWT)") from error
        found = self._issuers.get(claimed) if isinstance(claimed, str) else None
        if found is None:
            raise TokenRefusedError("its issuer is not one that this server believes")
        name, settings, provider = found
        algorithm, key = await _signing_key(header, settings, provider)
        return name, settings, _verified(token, key, algorithm, settings, audience(settings))

    async def close(self) -> None:
        for _, _, provider in self._issuers.values():
            await provider.close()


async def _signing_key(
    header: Mapping[str, Any], settings: IssuerSettings, provider: IdentityProvider
) -> tuple[str, Any]:
    algorithm, identifier, kind = header.get("alg"), header.get("kid"), header.get("typ")
    if algorithm not in settings.algorithms:
        raise TokenRefusedError("its algorithm is not one that this issuer may use")
    if "crit" in header or (kind.lower() if isinstance(kind, str) else kind) not in _TYPES:
        raise TokenRefusedError("it is of a kind that is not known here")
    if not isinstance(identifier, str) or len(identifier) > _MOST_NAME:
        raise TokenRefusedError("it does not name its key (kid)")
    key = await provider.find_key(identifier)
    if key is None:
        raise TokenRefusedError("its key (kid) is not one that the issuer publishes, as far as that is known")
    return algorithm, _public_key(key, algorithm)


def _public_key(key: Jwk, algorithm: str) -> Any:
    """The key for this algorithm and no other: what fits several could be confused."""
    import jwt
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    kind, curve = _KEY_TYPES[algorithm]
    fits = key.get("kty") == kind and (curve is None or key.get("crv") == curve)
    if not fits or key.get("use", "sig") != "sig" or key.get("alg", algorithm) != algorithm:
        raise TokenRefusedError("its algorithm is not that of its key")
    try:
        public: Any = jwt.PyJWK({name: key[name] for name in _PUBLIC if name in key}, algorithm).key
    except (jwt.PyJWTError, ValueError, TypeError) as error:
        raise TokenRefusedError("the key that the issuer publishes is not valid") from error
    if isinstance(public, RSAPublicKey) and public.key_size < _LEAST_RSA_BITS:
        raise TokenRefusedError(f"the issuer's key has less than {_LEAST_RSA_BITS} bits")
    return public


def _verified(token: str, key: Any, algorithm: str, settings: IssuerSettings, audience: str) -> Mapping[str, Any]:
    import jwt

    try:
        return jwt.decode(
            token,
            key,
            algorithms=[algorithm],
            audience=audience,
            issuer=settings.issuer,
            leeway=settings.leeway,
            options={"require": _REQUIRED},
        )
    except jwt.ExpiredSignatureError as error:
        raise TokenRefusedError("it has expired; get a new one from its issuer") from error
    except jwt.ImmatureSignatureError as error:
        raise TokenRefusedError("it is not valid yet; are the clocks right?") from error
    except jwt.InvalidAudienceError as error:
        raise TokenRefusedError("it is for another audience than this server") from error
    except (jwt.PyJWTError, ValueError, TypeError, OverflowError) as error:
        raise TokenRefusedError("its signature or its claims are not valid") from error


def _user(name: str, claims: Mapping[str, Any]) -> str:
    subject = claims["sub"]
    if not isinstance(subject, str) or not subject or len(subject) > _MOST_NAME or not subject.isprintable():
        raise TokenRefusedError("its subject (sub) is not a name")
    return f"user:{name}/{subject}"


def _auth_time(claims: Mapping[str, Any]) -> float | None:
    found = claims.get("auth_time")
    return float(found) if isinstance(found, int | float) and not isinstance(found, bool) and found > 0 else None


def _principal(name: str, settings: IssuerSettings, claims: Mapping[str, Any]) -> Principal:
    user = _user(name, claims)
    tenant = settings.tenant if settings.tenant_claim is None else _find(claims, settings.tenant_claim)
    if not isinstance(tenant, str) or (settings.tenant_claim is not None and not settings.may_name(tenant)):
        raise TokenRefusedError("it does not name a tenant that its issuer may speak for")
    scopes = _scopes(settings, _find(claims, settings.roles_claim))
    return Principal(tenant, user, frozenset(scopes), float(claims["exp"]), _auth_time(claims))


def _find(claims: Mapping[str, Any], path: Sequence[str]) -> object:
    found: object = claims
    for name in path:
        found = cast("Mapping[str, object]", found).get(name) if isinstance(found, dict) else None
    return found


def _scopes(settings: IssuerSettings, roles: object) -> Iterable[Scope]:
    """A claim has one role, several with blanks between, or a list."""
    listed = cast("list[object]", roles) if isinstance(roles, list) else []
    for role in roles.split() if isinstance(roles, str) else listed:
        if isinstance(role, str):
            yield from settings.roles.get(role, ())
