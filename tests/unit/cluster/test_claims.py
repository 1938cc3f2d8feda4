"""Keys and tokens of NATS, made here: what another has signed, or nobody, is not believed."""

from __future__ import annotations

import base64
import json
import time

import pytest

from fumehood.cluster import permissions
from fumehood.cluster.claims import read_user_token, user_token
from fumehood.cluster.nkeys import KeyKind, SigningPair, is_public_key
from fumehood.errors import UsageError


def test_a_seed_is_read_back_as_the_same_key() -> None:
    pair = SigningPair.generate(KeyKind.USER)
    assert SigningPair.of_seed(pair.seed).public == pair.public
    assert pair.seed.startswith("SU")
    assert is_public_key(pair.public, KeyKind.USER)
    assert not is_public_key(pair.public, KeyKind.ACCOUNT)


@pytest.mark.parametrize("damage", [lambda seed: seed[:-1], lambda seed: seed[:20] + "A" + seed[21:], lambda seed: "!"])
def test_a_damaged_seed_is_refused(damage) -> None:
    seed = "SUAIBDPBAUTWCWBKIO6XHQNINK5FWJW4OHLXC3HQ2KFE4PEJUA44CNHTC4"
    with pytest.raises(UsageError, match="NATS key"):
        SigningPair.of_seed(damage(seed))


def make_token(account: SigningPair, **options: object) -> str:
    user = SigningPair.generate(KeyKind.USER)
    return user_token(account, user.public, "w1", permissions.of_worker("w1"), **options)


def test_a_token_says_whom_a_worker_serves() -> None:
    account = SigningPair.generate(KeyKind.ACCOUNT)
    claims = read_user_token(make_token(account, tenants=["acme"]), account.public)
    assert (claims.name, claims.tenants) == ("w1", {"acme"})


def test_a_token_of_another_account_is_not_believed() -> None:
    account, other = SigningPair.generate(KeyKind.ACCOUNT), SigningPair.generate(KeyKind.ACCOUNT)
    with pytest.raises(UsageError):
        read_user_token(make_token(other), account.public)


def test_a_token_that_was_changed_is_not_believed() -> None:
    """A worker that is for one tenant cannot make itself one for all."""
    account = SigningPair.generate(KeyKind.ACCOUNT)
    head, body, signature = make_token(account, tenants=["acme"]).split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    claims["nats"]["tags"] = []
    changed = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    with pytest.raises(UsageError):
        read_user_token(f"{head}.{changed}.{signature}", account.public)


def test_a_token_that_has_expired_is_not_believed() -> None:
    account = SigningPair.generate(KeyKind.ACCOUNT)
    with pytest.raises(UsageError, match="expired"):
        read_user_token(make_token(account, expires=time.time() - 10), account.public)


def test_a_member_without_permissions_may_do_nothing() -> None:
    """Where a token has no list, NATS allows everything."""
    account, user = SigningPair.generate(KeyKind.ACCOUNT), SigningPair.generate(KeyKind.USER)
    token = user_token(account, user.public, "x", permissions.Permissions((), ()))
    body = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))["nats"]
    assert (body["pub"], body["sub"]) == ({"deny": [">"]}, {"deny": [">"]})
