"""Credentials of every format, put together when the tests run: none of them is in a file, and none opens anything."""

from __future__ import annotations

import base64
import json
import random
import string
from collections.abc import Iterator

_RANDOM = random.Random(1)
LETTERS = string.ascii_letters + string.digits
LOWER_HEX = "0123456789abcdef"
BASE32 = string.ascii_uppercase + "234567"
BECH32 = "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L"


def some(alphabet: str, count: int) -> str:
    return "".join(_RANDOM.choice(alphabet) for _ in range(count))


def _jwt() -> str:
    parts = [{"alg": "HS256", "typ": "JWT"}, {"sub": "1234567890", "name": "nobody"}]
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    return ".".join([*encoded, some(LETTERS + "_-", 43)])


def _key(kind: str) -> str:
    lines = "\n".join(some(LETTERS + "+/", 64) for _ in range(12))
    return f"-----BEGIN {kind}-----\n{lines}\n-----END {kind}-----"


def tokens() -> Iterator[tuple[str, str]]:
    """What it is called, and one of it."""
    yield from ((f"AWS access key {kind}", kind + some(BASE32, 16)) for kind in ("AKIA", "ASIA"))
    yield from ((f"GitHub {kind}", f"{kind}_" + some(LETTERS, 36)) for kind in ("ghp", "gho", "ghu", "ghs", "ghr"))
    yield "GitHub fine-grained", "github_pat_" + some(LETTERS, 22) + "_" + some(LETTERS, 59)
    yield "GitLab", "glpat-" + some(LETTERS, 20)
    yield "Slack bot", f"xoxb-{some(string.digits, 12)}-{some(string.digits, 13)}-{some(LETTERS, 24)}"
    yield "Slack app", f"xapp-1-A{some(LETTERS, 10)}-{some(string.digits, 13)}-{some(LOWER_HEX, 64)}"
    yield "Slack webhook", f"https://hooks.slack.com/services/T{some(BASE32, 8)}/B{some(BASE32, 8)}/{some(LETTERS, 24)}"
    yield "JSON web token", _jwt()
    yield "Google API", "AIza" + some(LETTERS + "_-", 35)
    yield "Google OAuth", "ya29." + some(LETTERS + "_-", 60)
    yield "Stripe", "sk_live_" + some(LETTERS, 24)
    yield "OpenAI", "sk-" + some(LETTERS, 20) + "T3BlbkFJ" + some(LETTERS, 20)
    yield "OpenAI project", "sk-proj-" + some(LETTERS, 74) + "T3BlbkFJ" + some(LETTERS, 73)
    yield "Anthropic", "sk-ant-api03-" + some(LETTERS + "_-", 93) + "AA"
    yield "npm", "npm_" + some(LETTERS, 36)
    yield "PyPI", "pypi-AgEIcHlwaS5vcmc" + some(LETTERS + "_-", 120)
    yield "Hugging Face", "hf_" + some(LETTERS, 34)
    yield "SendGrid", f"SG.{some(LETTERS, 22)}.{some(LETTERS, 43)}"
    yield "DigitalOcean", "dop_v1_" + some(LOWER_HEX, 64)
    yield "Docker", "dckr_pat_" + some(LETTERS, 27)
    yield "Databricks", "dapi" + some(LOWER_HEX, 32)
    yield "Vault", "hvs." + some(LETTERS, 90)
    yield "age", "AGE-SECRET-KEY-1" + some(BECH32, 58)
    yield "Telegram", some("123456789", 9) + ":AA" + some(LETTERS + "_-", 33)
    yield "Shopify", "shpat_" + some(LOWER_HEX, 32)
    for kind in ("RSA PRIVATE KEY", "PRIVATE KEY", "OPENSSH PRIVATE KEY", "EC PRIVATE KEY", "ENCRYPTED PRIVATE KEY"):
        yield kind, _key(kind)
    yield "PGP", _key("PGP PRIVATE KEY BLOCK")
    yield "a key that was cut off", _key("RSA PRIVATE KEY")[:300]


def with_context() -> Iterator[tuple[str, str]]:
    """A text, and what in it must not stay: formats that are told by what stands before them."""
    secret = some(LETTERS + "+/", 40)
    yield f"aws_secret_access_key = {secret}", secret
    yield f'"AwsSecretAccessKey": "{secret}"', secret
    yield f"AWS_SECRET_ACCESS_KEY={secret}", secret
    password = some(LETTERS, 16)
    yield f"postgres://app:{password}@db.internal:5432/x", password
    yield f"git clone https://somebody:{password}@host.invalid/x.git", password
    bearer = some(LETTERS + "._-", 40)
    yield f"Authorization: Bearer {bearer}", bearer
    yield f"'authorization': 'token {bearer}'", bearer
    account = some(LETTERS + "+/", 86) + "=="
    yield f"AccountName=x;AccountKey={account};EndpointSuffix=core", account
