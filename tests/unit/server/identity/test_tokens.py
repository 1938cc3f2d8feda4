"""Tokens of an identity provider in the place of keys: what is believed, and the known attacks on that."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from identity_provider import AUDIENCE, IdentityProviderServer, identity_provider
from unit.server.hosting import hosted

from fumehood.errors import UsageError
from fumehood.server.identity import provider as provider_module
from fumehood.server.identity.issuers import IssuerSettings
from fumehood.server.identity.principals import Principal, Scope
from fumehood.server.identity.provider import IdentityProvider
from fumehood.server.identity.tokens import TokenRefusedError, TokenVerifier
from fumehood.server.settings import load_settings

pytestmark = pytest.mark.anyio


@pytest.fixture
def login() -> Iterator[IdentityProviderServer]:
    with identity_provider() as server:
        yield server


def settings(issuer: str, /, **changes: object) -> dict[str, Any]:
    usual = {"tenant_claim": "tenant", "tenants": ["acme"], "roles": {"developer": ["run", "files"]}}
    return {"issuer": issuer, "audience": AUDIENCE, **usual, **changes}


@pytest.fixture
async def verifier(login: IdentityProviderServer) -> AsyncIterator[TokenVerifier]:
    made = TokenVerifier({"corp": IssuerSettings.model_validate(settings(login.issuer))})
    yield made
    await made.close()


async def refused(verifier: TokenVerifier, token: str) -> str:
    with pytest.raises(TokenRefusedError) as error:
        await verifier.verify(token)
    return str(error.value)


async def test_a_token_names_its_tenant_and_its_roles_become_scopes(
    login: IdentityProviderServer, verifier: TokenVerifier
) -> None:
    expires = time.time() + 60
    for kid, algorithm in (("rsa", "RS256"), ("ec", "ES256"), ("ed", "EdDSA")):
        if kid != "rsa":
            login.add_key(kid, algorithm)
    for kid in login.private:
        found = await verifier.verify(login.token(kid, exp=expires, roles="developer unknown"))
        scopes = frozenset({Scope.RUN, Scope.FILES})
        assert found == Principal("acme", "user:corp/ada", scopes, expires)
    assert (await verifier.verify(login.token(roles=["nothing"]))).scopes == frozenset()
    assert (await verifier.verify(login.token(roles={"developer": True}))).scopes == frozenset()
    nested = settings(login.issuer, roles_claim=["realm_access", "roles"], tenant="acme", tenant_claim=None, tenants=[])
    other = TokenVerifier({"corp": IssuerSettings.model_validate(nested)})
    found = await other.verify(login.token(tenant="beta", realm_access={"roles": ["developer"]}))
    assert (found.tenant, found.scopes) == ("acme", frozenset({Scope.RUN, Scope.FILES}))
    await other.close()


async def test_a_token_that_is_not_signed_as_the_settings_say_is_refused(
    login: IdentityProviderServer, verifier: TokenVerifier
) -> None:
    public = login.private["rsa"][1].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    for token in (
        login.forged(b"", alg="none"),
        login.forged(b"", alg="None"),
        login.forged(public, alg="HS256"),  # the published key taken for a shared secret
        login.token(header={"alg": "RS512"}),
    ):
        assert "algorithm" in await refused(verifier, token)
    # A published secret of the provider's own is not a key here, whatever it says of itself.
    login.published.append({"kty": "oct", "kid": "shared", "k": "AAAA", "alg": "RS256"})
    assert "algorithm" in await refused(verifier, login.forged(b"\0\0\0", alg="HS256", kid="shared"))
    login.add_key("ec", "ES256")
    assert "not that of its key" in await refused(verifier, login.token("rsa", header={"kid": "ec"}))
    first, second = login.token(), login.token(sub="eve")
    mixed = ".".join([*second.split(".")[:2], first.split(".")[2]])
    assert "signature" in await refused(verifier, mixed)
    assert "not a signed token" in await refused(verifier, "a.b.c")
    assert "too long" in await refused(verifier, "." * 20_000)


async def test_a_token_does_not_choose_where_its_key_comes_from(
    login: IdentityProviderServer, verifier: TokenVerifier
) -> None:
    with identity_provider() as attacker:
        elsewhere = {"jku": attacker.issuer + "/keys", "x5u": attacker.issuer + "/keys", "jwk": attacker.published[0]}
        token = attacker.token(header=elsewhere, iss=login.issuer)
        assert "signature" in await refused(verifier, token)
        assert "issuer" in await refused(verifier, attacker.token())
        assert attacker.requests == []
    for kid in ("../../../dev/null", "' OR 1=1 --", "x" * 300, login.issuer + "/keys"):
        assert "kid" in await refused(verifier, login.token(header={"kid": kid}))
    await refused(verifier, login.token(header={"crit": ["exp"]}))
    assert "kind" in await refused(verifier, login.token(header={"typ": "logout+jwt"}))


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"aud": "another"}, "another audience"),
        ({"aud": ["another", "third"]}, "another audience"),
        ({"exp": 1_000_000_000}, "expired"),
        ({"exp": None}, "claims are not valid"),
        ({"exp": "never"}, "claims are not valid"),
        ({"nbf": 10_000_000_000}, "not valid yet"),
        ({"sub": ""}, "subject"),
        ({"sub": "a\x1b[2Jb"}, "subject"),
        ({"tenant": "other"}, "tenant"),
        ({"tenant": "*"}, "tenant"),
        ({"tenant": ["acme"]}, "tenant"),
        ({"tenant": None}, "tenant"),
    ],
)
async def test_claims_that_are_not_for_this_server_are_refused(
    login: IdentityProviderServer, verifier: TokenVerifier, claims: dict[str, object], reason: str
) -> None:
    assert reason in await refused(verifier, login.token(**claims))


async def test_unknown_keys_do_not_flood_the_provider_and_a_rotated_key_is_found(login: IdentityProviderServer) -> None:
    now = 1000.0
    provider = IdentityProvider(IssuerSettings.model_validate(settings(login.issuer)), lambda: now)
    found = await asyncio.gather(*(provider.find_key(f"unknown-{number}") for number in range(50)))
    assert found == [None] * 50
    assert len(login.requests) == 2  # the document and the keys, once
    login.add_key("new", "ES256")
    assert await provider.find_key("new") is None
    now += provider_module.PAUSE_SECONDS
    assert await provider.find_key("new") is not None
    assert len(login.requests) == 4
    # One that the provider has withdrawn ends as well, when the keys are looked at again.
    login.published = [key for key in login.published if key["kid"] != "new"]
    now += 3600
    assert await provider.find_key("new") is not None
    assert await provider.find_key("unknown") is None  # waits for the look that the call before has begun
    assert await provider.find_key("new") is None
    await provider.close()


async def test_known_keys_go_on_while_the_provider_is_away_but_not_for_ever() -> None:
    now = 1000.0
    with identity_provider() as login:
        provider = IdentityProvider(IssuerSettings.model_validate(settings(login.issuer)), lambda: now)
        assert await provider.find_key("rsa") is not None
    now += 3600
    assert await provider.find_key("rsa") is not None
    assert await provider.find_key("unknown") is None
    now += 86400
    assert await provider.find_key("rsa") is None
    await provider.close()


@pytest.mark.parametrize(
    ("path", "document"),
    [
        ("/realm/.well-known/openid-configuration", {"issuer": "https://other.example", "jwks_uri": "https://a.b/"}),
        ("/realm/.well-known/openid-configuration", b"<html>"),
        ("/realm/.well-known/openid-configuration", ["x"]),
        ("/realm/keys", {"keys": "none"}),
        ("/realm/keys", b" " * 600_000 + b"{}"),
    ],
)
async def test_a_provider_that_answers_nonsense_has_no_keys(
    login: IdentityProviderServer, verifier: TokenVerifier, path: str, document: object
) -> None:
    login.documents[path] = document
    assert "not one that the issuer publishes" in await refused(verifier, login.token())


async def test_a_document_does_not_lead_to_keys_that_come_without_tls(
    login: IdentityProviderServer, verifier: TokenVerifier
) -> None:
    login.documents["/realm/.well-known/openid-configuration"] = {
        "issuer": login.issuer,
        "jwks_uri": "http://192.0.2.1/keys",
    }
    assert "not one that the issuer publishes" in await refused(verifier, login.token())


async def test_a_server_takes_tokens_beside_keys(login: IdentityProviderServer, tmp_path: Path) -> None:
    own = settings(login.issuer, tenants=["*"], roles={"developer": ["run"], "auditor": ["audit"]})
    async with hosted(tmp_path / "state", oidc={"corp": own}) as host:
        key = await host.tenant("acme")
        assert (await key.get("/whoami")).json()["principal"].startswith("key:")
        user = host.client(login.token(roles=["developer"]))
        assert (await user.get("/whoami")).json() == {
            "principal": "user:corp/ada",
            "tenant": "acme",
            "scopes": ["run"],
            "expires_at": pytest.approx(time.time() + 300, abs=60),
        }
        opened = await user.post("/sandboxes", json={})
        assert (opened.status_code, opened.json()["opened_by"]) == (201, "user:corp/ada")
        forbidden = await user.get("/audit/records")
        assert (forbidden.status_code, forbidden.json()["scope"]) == (403, "audit")
        # Another tenant's claim: believed of this issuer, and still no way to what is acme's.
        await host.tenant("beta")
        beta = host.client(login.token(tenant="beta"))
        assert (await beta.get(f"/sandboxes/{opened.json()['id']}")).status_code == 404
        nowhere = await host.client(login.token(tenant="nowhere")).get("/whoami")
        assert (nowhere.status_code, "tenant" in nowhere.json()["detail"]) == (401, True)
        expired = await host.client(login.token(exp=1)).get("/whoami")
        assert (expired.status_code, expired.headers["www-authenticate"]) == (401, "Bearer")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"issuer": "http://login.example"}, "https://"),
        ({"issuer": "login.example"}, "must be an address"),
        ({"algorithms": ["HS256"]}, "algorithms"),
        ({"algorithms": ["none"]}, "algorithms"),
        ({"tenants": []}, "belong together"),
        ({"tenant": "acme"}, "either `tenant`"),
        ({"roles": {"developer": ["everything"]}}, "roles"),
        ({"leeway": "1h"}, "5 minutes at most"),
    ],
)
def test_settings_of_an_issuer_that_would_weaken_it_are_refused(changes: dict[str, object], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        load_settings(None, oidc={"corp": settings("https://login.example", **changes)})
