"""Issuers of tokens as the settings name them: whom the server believes, for which tenants, and what roles mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from fumehood.policy.quantities import Duration
from fumehood.policy.section import Ordered, Section, Text
from fumehood.server.http_call import check_url
from fumehood.server.identity.principals import Scope

EVERY_TENANT = "*"
_MOST_LEEWAY_SECONDS = 300.0
# Signatures alone: a token that is "signed" with a shared secret, or not at all, is not known here.
Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]


def _as_path(value: object) -> object:
    return [value] if isinstance(value, str) else value


ClaimPath = Annotated[Ordered[Text], BeforeValidator(_as_path)]
"""Where a claim is in a token: its name, or the names that lead to it, such as [realm_access, roles]."""


class IssuerSettings(Section):
    """An identity provider of OpenID Connect whose access tokens are taken in the place of keys."""

    issuer: Annotated[Text, AfterValidator(check_url)] = Field(
        description="Exactly as tokens have it in `iss`; its keys are found by /.well-known/openid-configuration."
    )
    audience: Text = Field(description="What tokens for this server have in `aud`.")
    algorithms: Ordered[Algorithm] = Field(default=("RS256", "ES256", "EdDSA"), description="Of its signatures.")
    tenant: Text | None = Field(default=None, description="The tenant of all its tokens, ...")
    tenant_claim: ClaimPath | None = Field(
        default=None, description="... or the claim that names it: its name, or a list of names that lead to it."
    )
    tenants: Ordered[Text] = Field(
        default=(), description="The tenants that the claim may name; `*` for all, of a provider of your own."
    )
    roles_claim: ClaimPath = Field(default=("roles",), description="The claim that has the roles, likewise.")
    roles: Mapping[Text, Ordered[Annotated[Scope, Field(strict=False)]]] = Field(
        description="Role -> the scopes that it gives; other roles give none."
    )
    leeway: Duration = Field(default=30.0, description="How far its clock may be from this one; 5 minutes at most.")
    ca: Text | None = Field(default=None, description="A file of certificates to trust at its address.")

    client: Text | None = Field(
        default=None, description="This server's name there (client_id); with it people sign in to the console."
    )
    client_secret_file: Text | None = Field(default=None, description="A file of its secret, if it has one.")
    sign_in_scopes: Ordered[Text] = Field(default=("openid",), description="Asked for when people sign in.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.tenant is None) == (self.tenant_claim is None):
            raise ValueError("give either `tenant`, for all its tokens, or `tenant_claim`, which names it")
        if (self.tenant_claim is None) != (not self.tenants):
            raise ValueError("`tenants` lists the tenants that `tenant_claim` may name; they belong together")
        if self.client_secret_file is not None and self.client is None:
            raise ValueError("`client_secret_file` is of a `client`; give both")
        if self.leeway > _MOST_LEEWAY_SECONDS:
            raise ValueError("leeway: 5 minutes at most; set the clocks")
        return self

    def may_name(self, tenant: str) -> bool:
        return EVERY_TENANT in self.tenants or tenant in self.tenants
